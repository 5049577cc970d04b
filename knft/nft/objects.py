"""What a table is made of: chains, containers (sets and maps), and what the containers hold."""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr

from knft.nft.expressions import Goto, Jump, Rule, Verdict

Family = Literal["ip", "ip6"]

Key = tuple[str | int, ...]
"""An element's key: addresses, CIDRs and protocol names as text, ports and indexes as numbers."""

Target = tuple[str, int]
"""What an element of an endpoint map leads to: address and port."""


COMMENT_BYTES = 128
"""The longest comment that libnftables accepts (NFTNL_UDATA_COMMENT_MAXLEN)."""


class Entry(Struct, frozen=True, gc=False):
    """What an element of a verdict map says, and a comment for people ("" for none).

    A comment is cut here, not only where it is written: what a listing shows must equal what was wanted.
    """

    verdict: Verdict
    comment: str = ""

    def __post_init__(self) -> None:
        """Cut the comment to what the kernel keeps of it."""
        if len(self.comment) > COMMENT_BYTES:
            force_setattr(self, "comment", self.comment[:COMMENT_BYTES])


class Memory(Struct, frozen=True, gc=False):
    """How long an element of a dynamic set is kept after each use, and how long still, in seconds."""

    timeout: int
    expires: int


Value = Entry | Target | Memory | None
"""An element's value; None in a set, Memory in a dynamic one."""


class ArrayName(Struct, frozen=True, gc=False):
    """One array: the elements of ``container`` whose keys are ``prefix`` and an index from 0."""

    container: str
    prefix: Key


Array = tuple[Target | None, ...]
"""The targets of an array by index; None where the kernel was found to have no such element."""


class Hook(Struct, frozen=True):
    """Where a base chain is attached."""

    type: Literal["filter", "nat"]
    hook: Literal["prerouting", "input", "forward", "output", "postrouting"]
    priority: int


class Chain(Struct, frozen=True):
    """A chain; one with a hook is a base chain, whose policy is to accept."""

    name: str
    rules: tuple[Rule, ...] = ()
    hook: Hook | None = None

    def leads_to(self) -> tuple[str, ...]:
        """Return the chains that its rules name; the maps that they look into may lead to more."""
        statements = (statement for rule in self.rules for statement in rule.statements)
        return tuple(statement.chain for statement in statements if isinstance(statement, Goto | Jump))


class Container(Struct, frozen=True):
    """The declaration of a set or a map.

    ``key`` and ``data`` are written as nft text after ``type``, or after ``typeof`` where ``by_expression`` is true; a
    set has no ``data``. A set with a ``dynamic_size`` is filled by rules, with timeouts, up to that many elements.
    """

    name: str
    key: str
    data: str = ""
    by_expression: bool = False
    interval: bool = False
    dynamic_size: int = 0
    comment: str = ""

    @property
    def is_map(self) -> bool:
        """Whether elements have values."""
        return bool(self.data)


class Contents(Struct):
    """What the containers of one table, or of a part of it, hold.

    ``entries`` are elements of verdict maps and ``arrays`` those of endpoint maps; ``members`` are elements of sets.
    ``chains`` are those that belong to one owner, by name.
    """

    entries: dict[tuple[str, Key], Entry]
    arrays: dict[ArrayName, Array]
    members: set[tuple[str, Key]]
    chains: dict[str, Chain] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> "Contents":
        """Return contents that hold nothing."""
        return cls({}, {}, set(), {})

    @classmethod
    def joined(cls, parts: Iterable["Contents"]) -> "Contents":
        """Return what all parts hold together."""
        joined = cls.empty()
        for part in parts:
            joined.absorb(part)
        return joined

    def absorb(self, other: "Contents") -> None:
        """Take in everything that ``other`` holds."""
        self.entries.update(other.entries)
        self.arrays.update(other.arrays)
        self.members |= other.members
        self.chains.update(other.chains)

    def without(self, other: "Contents") -> "Contents":
        """Return the contents but what ``other`` has under the same names and keys."""
        return Contents(
            {place: entry for place, entry in self.entries.items() if place not in other.entries},
            {name: array for name, array in self.arrays.items() if name not in other.arrays},
            self.members - other.members,
            {name: chain for name, chain in self.chains.items() if name not in other.chains},
        )

    def elements(self) -> dict[str, dict[Key, Value]]:
        """Return every element by container, in the order of the keys."""
        found: dict[str, dict[Key, Value]] = {}
        for (container, key), entry in self.entries.items():
            found.setdefault(container, {})[key] = entry
        for name, array in self.arrays.items():
            into = found.setdefault(name.container, {})
            into.update(((*name.prefix, index), target) for index, target in enumerate(array) if target is not None)
        for container, key in self.members:
            found.setdefault(container, {})[key] = None
        return {name: dict(sorted(found[name].items())) for name in sorted(found)}


class Table(Struct, frozen=True):
    """A whole table, as it would be made from nothing.

    One that is ``owned`` can only be changed by the process that makes it, and outlives it.
    """

    family: Family
    name: str
    comment: str
    containers: tuple[Container, ...]
    chains: tuple[Chain, ...]
    elements: Mapping[str, Mapping[Key, Value]]
    owned: bool = False
