"""The legacy rule sets, for parity testing: what kube-proxy's iptables and IPVS modes would install.

knft's data path never imports this package.
"""
