"""Expressions and statements: what rules are made of. Only the forms that knft emits exist here.

Each is listed again by libnftables 1.0.6 and 1.1.3 as it was sent.
"""

from typing import Literal

from msgspec import Struct

Comparison = Literal["==", "!=", "in"]
"""``in`` tests a bit field (``ct state new``); nft text writes nothing for ``==`` and ``in``."""


class Payload(Struct, frozen=True, tag=True):
    """A header field: ``ip daddr``, ``th dport``."""

    protocol: str
    field: str


class Meta(Struct, frozen=True, tag=True):
    """A packet's metadata: ``meta l4proto``, ``meta mark``."""

    key: str


class Ct(Struct, frozen=True, tag=True):
    """A connection's property: ``ct state``, ``ct status``."""

    key: str


class FibType(Struct, frozen=True, tag=True):
    """The routing type of the packet's ``saddr`` or ``daddr``: ``fib daddr type``."""

    address: Literal["saddr", "daddr"]


class RandomNumber(Struct, frozen=True, tag=True):
    """One of ``modulus`` numbers from ``offset`` on, each as likely as the others, drawn for each packet."""

    modulus: int
    offset: int = 0


class Constant(Struct, frozen=True, tag=True):
    """A number as part of a key: written as a random number of which there is only one, ``mod 1 offset value``."""

    value: int


class Concat(Struct, frozen=True, tag=True):
    """Several expressions as one key, joined by ``.`` in nft text."""

    parts: tuple[Payload | Meta | RandomNumber | Constant, ...]


Key = Payload | Meta | Concat


class Reference(Struct, frozen=True, tag=True):
    """The name of a set or map of the same table."""

    container: str


class Network(Struct, frozen=True, tag=True):
    """A CIDR, as canonical text."""

    cidr: str


class Interface(Struct, frozen=True, tag=True):
    """An interface's name, or the beginning of names and ``*``."""

    name: str


class Match(Struct, frozen=True, tag=True):
    """The rule goes on only where the comparison holds."""

    left: Payload | Meta | Ct | FibType | Concat
    right: Reference | Network | Interface | str
    op: Comparison = "=="


class Chance(Struct, frozen=True, tag=True):
    """The rule goes on only for ``cases`` out of ``total`` packets, at random."""

    cases: int
    total: int


class MarkIsSet(Struct, frozen=True, tag=True):
    """The rule goes on only for packets that carry the bits of ``mask`` (not all of them need be set)."""

    mask: int


class SetMark(Struct, frozen=True, tag=True):
    """Set the bits of ``mask`` in the packet's mark."""

    mask: int


class FlipMark(Struct, frozen=True, tag=True):
    """Flip the bits of ``mask`` in the packet's mark."""

    mask: int


class Jump(Struct, frozen=True, tag=True):
    """Go to a chain, and come back where it ends."""

    chain: str


class Goto(Struct, frozen=True, tag=True):
    """Go to a chain for good."""

    chain: str


class Drop(Struct, frozen=True, tag=True):
    """Drop the packet."""


class Reject(Struct, frozen=True, tag=True):
    """Refuse the packet with the family's "port unreachable"."""


class Masquerade(Struct, frozen=True, tag=True):
    """Replace the source by the node's address, with a randomly chosen port."""


class VerdictMap(Struct, frozen=True, tag=True):
    """Do what the map says for the key; nothing where it has no such key."""

    key: Key
    map: str


class DnatFromMap(Struct, frozen=True, tag=True):
    """Replace destination and port by what the map says for the key; nothing where it has no such key."""

    family: Literal["ip", "ip6"]
    key: Key
    map: str


class Dnat(Struct, frozen=True, tag=True):
    """Replace destination and port; the rule must have matched the protocol."""

    family: Literal["ip", "ip6"]
    address: str
    port: int


class Update(Struct, frozen=True, tag=True):
    """Put a key into a dynamic set, or renew it there, for ``seconds``."""

    set: str
    key: Key
    seconds: int


Verdict = Goto | Jump | Drop
Translation = DnatFromMap | Dnat
Statement = (
    Match
    | Chance
    | MarkIsSet
    | SetMark
    | FlipMark
    | Jump
    | Goto
    | Drop
    | Reject
    | Masquerade
    | VerdictMap
    | Update
    | Translation
)


class Rule(Struct, frozen=True):
    """Statements in order, and a comment for people ("" for none)."""

    statements: tuple[Statement, ...]
    comment: str = ""
