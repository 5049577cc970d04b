"""What kube-proxy left on a node, and how to take it away: pure planning.

Comes in: what iptables-save, ipset and the kernel print, as text. Goes out: what is kube-proxy's, in words for people,
and the commands that remove it. Never: I/O (``kernel`` reads and carries out), and never a name that is not
kube-proxy's own: chains, rules, sets, virtual servers and policies of others stay byte for byte, and where one of
them needs something of kube-proxy's, that stays too, and is named.
"""
