"""Packets in treacle: knft's first chain is made so long that many packets are under way at every commit.

What a packet meets in chains is what there was when it came, also in those that it is led to; but what it finds in a
map is what there is when it looks. Rules that match nothing, before the first look, make the time between the two long.
"""

from tests.lab.namespace import Namespace

RULES = 50_000
_NOTHING = "meta length 1"
"""Matches no packet: none is so short."""


def pour(namespace: Namespace) -> None:
    """Hold packets up before frontends are looked up, until ``services`` is written anew."""
    for family in ("ip", "ip6"):
        commands = [
            f"add chain {family} knft treacle",
            *[f"add rule {family} knft treacle {_NOTHING}"] * RULES,
            f"insert rule {family} knft services jump treacle",
        ]
        namespace.run(["nft", "-f", "-"], stdin="\n".join(commands))
