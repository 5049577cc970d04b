"""Plans the removal of what kube-proxy left on a node, without I/O.

Inputs: the text that iptables-save, ipset and the kernel print. Outputs: kube-proxy's objects, messages about them,
and the commands that remove them. Objects of other programs stay unchanged. If one of them uses an object of
kube-proxy, that object stays too, and the plan names it.
"""
