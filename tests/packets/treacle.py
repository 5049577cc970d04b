"""Packets in treacle: a chain of knft's is made so long that many packets are under way at every commit.

What a packet meets in chains is what there was when it came, also in those that it is led to; but what it finds in a
map is what there is when it looks. Rules that match nothing, before the look, make the time between the two long.
"""

from collections.abc import Iterable

from tests.support.lab.namespace import Namespace

RULES = 50_000
_NOTHING = "meta length 1"
"""Matches no packet: none is so short."""


def pour(namespace: Namespace, chains: Iterable[str], rules: int = RULES) -> None:
    """Hold packets up at the beginning of these chains, until they are written anew.

    In ``services`` that is before their verdict is looked up, in a pool between that and their endpoint, in
    ``masquerading`` between that and whether they go back to whom they came from.
    """
    for family in ("ip", "ip6"):
        commands = [
            f"add chain {family} knft treacle",
            *[f"add rule {family} knft treacle {_NOTHING}"] * rules,
            *(f"insert rule {family} knft {chain} jump treacle" for chain in chains),
        ]
        namespace.run(["nft", "-f", "-"], stdin="\n".join(commands))
