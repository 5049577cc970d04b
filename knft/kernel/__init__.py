# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""The interface to the Linux kernel: libnftables, netlink, /proc and /sys.

No other package imports ``nftables`` or ``pyroute2``. This one makes no decisions. It raises KernelError or
UnsupportedError, with the original message, where libnftables or the kernel refuses a request.

It never changes or flushes nftables tables of other programs. Of these it requests the contents of kube-proxy's only,
and those of others for ``knft preflight --foreign-tables``; ``table_flags`` and ``newer_sets`` read names and flags of
all tables. ``xtables`` and ``ipvs`` change other programs' rules, at the request of ``knft cleanup``.
"""
