"""The names of the proxies in results and tables."""

KNFT, NFTABLES, IPTABLES = "knft", "kube-proxy nftables", "kube-proxy iptables"
PROXY_NAMES = (KNFT, NFTABLES, IPTABLES)
