"""Interprets nftables, iptables and IPVS rules, and computes what they do to packets.

``nftables``, ``iptables`` and ``ipvs`` parse captured text into the values of ``rules``. ``walk`` follows classes of
packets through a rule set, ``compare`` finds the packets that two rule sets treat differently, and ``trace`` describes
the path of one packet. The package does no I/O. A rule that it cannot interpret is never skipped: packets that reach
it have the disposition "undecided".
"""
