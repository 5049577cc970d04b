"""The kernel, at the far end: libnftables and netlink. The only place that imports ``nftables`` and ``pyroute2``.

It decides nothing. What libnftables or the kernel refuses is raised as KernelError or UnsupportedError, chained, with
what they said; foreign tables are never listed, touched or flushed.
"""
