"""Compares kube-proxy's rules with knft's: rendered for the same objects, captured on a node, or in the kernel.

Inputs: Kubernetes objects and settings, the output of iptables-save, ipset, ipvsadm and nft, or this machine's kernel.
Output: a ``Report`` of ``knft.interpret.compare``. ``knft.cli`` parses the flags and prints the report.
"""
