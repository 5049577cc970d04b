"""Reads rule sets, knft's own and others', and decides what becomes of a class of packets.

Text in, outcomes out: ``nftables``, ``iptables`` and ``ipvs`` read captures into ``rules``, ``walk`` follows packets
through them, ``compare`` holds two of them against each other. It never touches the kernel, reads no file, and never
passes over a rule that it does not know.
"""
