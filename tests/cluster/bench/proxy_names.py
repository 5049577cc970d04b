"""The names of the proxies in results and tables."""

KNFT, NFTABLES, IPTABLES, LEGACY = "knft", "kube-proxy nftables", "kube-proxy iptables", "kube-proxy iptables-legacy"
"""Mode iptables uses the machine's ``iptables``, which has the nf_tables backend today, or ``iptables-legacy``."""
PROXY_NAMES = (KNFT, NFTABLES, IPTABLES, LEGACY)
_MAX_SERVICES_OF_IPTABLES = 2000


def default_proxies(services: int) -> tuple[str, ...]:
    """Return the proxies that are compared for this number of Services.

    iptables with the nf_tables backend takes over five minutes to load the rules of 10 000 Services.
    """
    return KNFT, NFTABLES, (IPTABLES if services <= _MAX_SERVICES_OF_IPTABLES else LEGACY)
