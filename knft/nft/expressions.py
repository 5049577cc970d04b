"""Expressions and statements, the parts of rules. The module defines only the forms that knft uses.

libnftables 1.0.6 and 1.1.3 list each of them as it was sent, except for those in ``codec.rule_digests._normalized``.
"""

from typing import Literal

from msgspec import Struct

from knft.families import NftFamily

Comparison = Literal["==", "!=", "in"]
"""``in`` tests a bit field, as ``ct state new`` does; nft text omits the operator for ``==`` and ``in``."""


class Payload(Struct, frozen=True, tag=True):
    """A header field: ``ip daddr``, ``th dport``."""

    protocol: str
    field: str


class Meta(Struct, frozen=True, tag=True):
    """A packet's metadata: ``meta l4proto``, ``meta mark``."""

    key: str


class Ct(Struct, frozen=True, tag=True):
    """A connection's property: ``ct state``, ``ct status``, ``ct protocol``."""

    key: str


class FibType(Struct, frozen=True, tag=True):
    """The routing type of the packet's ``saddr`` or ``daddr``: ``fib daddr type``."""

    address: Literal["saddr", "daddr"]


class RandomNumber(Struct, frozen=True, tag=True):
    """A number from ``offset`` to ``offset + modulus - 1``, drawn uniformly for each packet: ``numgen random mod``."""

    modulus: int
    offset: int = 0


class Constant(Struct, frozen=True, tag=True):
    """A constant as part of a key, written as ``numgen random mod 1 offset value``: nft has no such expression."""

    value: int


class Hash(Struct, frozen=True, tag=True):
    """A number from 0 to ``modulus - 1``, the hash of header fields: ``jhash``. The same seed gives the same hash.

    libnftables accepts the hash of several fields only as text.
    """

    fields: tuple[Payload, ...]
    modulus: int
    seed: int


class Concat(Struct, frozen=True, tag=True):
    """Several expressions as one key, joined by ``.`` in nft text."""

    parts: tuple[Payload | Meta | Ct | RandomNumber | Constant | Hash, ...]


KeyExpression = Payload | Meta | Concat


class Reference(Struct, frozen=True, tag=True):
    """A reference to a set or map of the same table: ``@name``."""

    container: str


class Network(Struct, frozen=True, tag=True):
    """A CIDR, as canonical text."""

    cidr: str


class Interface(Struct, frozen=True, tag=True):
    """An interface name, or a prefix followed by ``*``."""

    name: str


class Match(Struct, frozen=True, tag=True):
    """Continue with the rule only if the comparison is true."""

    left: Payload | Meta | Ct | FibType | Concat
    right: Reference | Network | Interface | str
    op: Comparison = "=="


class MarkIsSet(Struct, frozen=True, tag=True):
    """Continue with the rule only if any bit of ``mask`` is set in the packet's mark."""

    mask: int


class SetMark(Struct, frozen=True, tag=True):
    """Set the bits of ``mask`` in the packet's mark."""

    mask: int


class FlipMark(Struct, frozen=True, tag=True):
    """Flip the bits of ``mask`` in the packet's mark."""

    mask: int


class ClearPriority(Struct, frozen=True, tag=True):
    """Set the packet's priority to 0, the default."""


class SetPriorityFromMap(Struct, frozen=True, tag=True):
    """Set the packet's priority to the map's value for the key; continue with the next rule if it contains none."""

    key: KeyExpression
    map: str


class Jump(Struct, frozen=True, tag=True):
    """Continue in a chain, and return here at its end."""

    chain: str


class Goto(Struct, frozen=True, tag=True):
    """Continue in a chain without returning here."""

    chain: str


class Count(Struct, frozen=True, tag=True):
    """Count the packet and its bytes in the rule, and continue."""


class Drop(Struct, frozen=True, tag=True):
    """Drop the packet."""


class Return(Struct, frozen=True, tag=True):
    """End the chain, and continue where it was jumped to from."""


class Reject(Struct, frozen=True, tag=True):
    """Reject the packet with the family's "port unreachable"."""


class RejectWithReset(Struct, frozen=True, tag=True):
    """Reject the packet with a TCP reset."""


class Masquerade(Struct, frozen=True, tag=True):
    """Replace the source address by the node's, with a random port."""


class VerdictMap(Struct, frozen=True, tag=True):
    """Apply the map's verdict for the key; continue if the map does not contain it."""

    key: KeyExpression
    map: str


class DnatFromMap(Struct, frozen=True, tag=True):
    """Replace destination address and port by the map's value for the key; continue if the map does not contain it."""

    family: NftFamily
    key: KeyExpression
    map: str


class Update(Struct, frozen=True, tag=True):
    """Add a key to a dynamic set, or restart its timeout of ``seconds``."""

    set: str
    key: KeyExpression
    seconds: int


Verdict = Goto | Jump | Drop
Statement = (
    Match
    | MarkIsSet
    | SetMark
    | FlipMark
    | ClearPriority
    | SetPriorityFromMap
    | Jump
    | Goto
    | Count
    | Drop
    | Return
    | Reject
    | RejectWithReset
    | Masquerade
    | VerdictMap
    | Update
    | DnatFromMap
)


class Rule(Struct, frozen=True):
    """Statements in order, and a comment ("" for none)."""

    statements: tuple[Statement, ...]
    comment: str = ""
