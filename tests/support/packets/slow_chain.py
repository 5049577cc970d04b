"""Makes a chain of knft's so long that many packets are in the middle of the rules at every commit.

A packet is evaluated by the chains that existed when it entered, also by those that it jumps to, but by the map
elements that exist at the time of each lookup. Rules that match nothing, placed before a lookup, delay it.
"""

from collections.abc import Iterable

from tests.support.lab.namespace import Namespace

RULES = 50_000
"""They delay a packet by a millisecond."""
_JUMPS = 100
"""A packet evaluates a short chain this many times: a chain of 50 000 rules takes a second to load or to delete."""
_NOTHING = "meta length 1"
"""Matches no packet: IP headers are longer."""


def slow_down(namespace: Namespace, chains: Iterable[str], rules: int = RULES) -> None:
    """Delay packets by ``rules`` rules at the beginning of these chains, until knft writes the chains again.

    In ``services`` the delay is before the lookup of the verdict, in a pool it is between that and the lookup of the
    endpoint, in ``masquerading`` it is before the check for a hairpin connection.
    """
    for family in ("ip", "ip6"):
        commands = [
            f"add chain {family} knft slow-part",
            *[f"add rule {family} knft slow-part {_NOTHING}"] * (rules // _JUMPS),
            f"add chain {family} knft slow-chain",
            *[f"add rule {family} knft slow-chain jump slow-part"] * _JUMPS,
            *(f"insert rule {family} knft {chain} jump slow-chain" for chain in chains),
        ]
        namespace.run(["nft", "-f", "-"], stdin="\n".join(commands))
