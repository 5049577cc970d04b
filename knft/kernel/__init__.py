"""The interface to the Linux kernel: libnftables, netlink, /proc and /sys.

No other package imports ``nftables`` or ``pyroute2``. This one makes no decisions. It raises KernelError or
UnsupportedError, with the original message, where libnftables or the kernel refuses a request. It never lists, changes
or flushes other programs' tables, except to read kube-proxy's.
"""
