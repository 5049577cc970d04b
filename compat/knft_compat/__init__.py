"""The legacy rule sets, for parity testing: what kube-proxy's iptables and IPVS modes hand to the kernel.

A ``Cluster`` goes in: the same trackers' and the same decisions' results that knft renders from, and what the mode's
flags say. A ``Page`` of parts comes out, each part the input of one tool (``iptables-restore``, ``ipset restore``), in
the order in which kube-proxy uses them. Nothing here touches the machine or reads a file. knft's data path never
imports this package.
"""
