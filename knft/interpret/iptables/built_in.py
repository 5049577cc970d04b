"""The kernel's own chains: which table has which, where they hook in, and when."""

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
"""The tables, and the chains that each has from the start."""

_PRIORITIES = {"raw": -300, "mangle": -150, "filter": 0, "security": 50}
_NAT_PRIORITIES = {"PREROUTING": -100, "OUTPUT": -100, "INPUT": 100, "POSTROUTING": 100}
"""As include/uapi/linux/netfilter_ipv4.h numbers them."""


def base_chain(table: str, chain: str, policy: str) -> BaseChain:
    """Return where the kernel enters a chain of its own."""
    is_nat = table == "nat"
    return BaseChain(
        chain=f"{table} {chain}",
        hook=_HOOKS[chain],
        # What mangle does to a packet of the node itself can change its route.
        kind="nat" if is_nat else "route" if (table, chain) == ("mangle", "OUTPUT") else "filter",
        priority=_NAT_PRIORITIES[chain] if is_nat else _PRIORITIES[table],
        policy="drop" if policy == "DROP" else "accept",
    )
