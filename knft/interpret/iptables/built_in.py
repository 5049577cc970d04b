"""The built-in chains of iptables: their tables, hooks and priorities."""

from knft.interpret.rules import BaseChain, Hook

_HOOKS: dict[str, Hook] = {
    "PREROUTING": "prerouting",
    "INPUT": "input",
    "FORWARD": "forward",
    "OUTPUT": "output",
    "POSTROUTING": "postrouting",
}
_EVERYWHERE = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")

TABLES: dict[str, tuple[str, ...]] = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": _EVERYWHERE,
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "security": ("INPUT", "FORWARD", "OUTPUT"),
}
"""The built-in chains of each table."""

_PRIORITIES = {"raw": -300, "mangle": -150, "filter": 0, "security": 50}
_NAT_PRIORITIES = {"PREROUTING": -100, "OUTPUT": -100, "INPUT": 100, "POSTROUTING": 100}
"""NF_IP_PRI_* of include/uapi/linux/netfilter_ipv4.h."""


def base_chain(table: str, chain: str, policy: str) -> BaseChain:
    """Return a built-in chain with its hook, type, priority and policy."""
    is_nat = table == "nat"
    return BaseChain(
        chain=f"{table} {chain}",
        hook=_HOOKS[chain],
        # Changes in mangle OUTPUT can change the route of a packet that the node sends.
        kind="nat" if is_nat else "route" if (table, chain) == ("mangle", "OUTPUT") else "filter",
        priority=_NAT_PRIORITIES[chain] if is_nat else _PRIORITIES[table],
        policy="drop" if policy == "DROP" else "accept",
    )
