"""The objects of a table: chains, containers, and the elements of containers.

container  a set or a map of nftables
element    a key in a container, with a value if the container is a map
member     an element of a set: only a key
entry      the value of an element of a verdict map: verdict and comment
target     the value of an element of an endpoint map: address and port
array      the elements of one endpoint map, or map of endpoint IDs, whose keys begin alike, with a frontend or the
           number of a wide Service port, and end with an index from 0
position   a container and a key: where an element is

Here an entry is not a conntrack entry or an affinity entry, and a target is not a target of iptables.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr

from knft.families import NftFamily
from knft.nft.expressions import Goto, Jump, Rule, Verdict

Key = tuple[str | int, ...]
"""An element's key: addresses, CIDRs and protocol names are strings, ports and indexes are integers."""

Target = tuple[str, int]
"""The value of an element of an endpoint map: address and port."""

EndpointId = int
"""The value of an element of a map of endpoint IDs (``knft.render.endpoint_ids``): 1 to 2**32 - 2."""


COMMENT_BYTES = 128
"""The maximum length of a comment in libnftables (NFTNL_UDATA_COMMENT_MAXLEN).

knft's comments are ASCII (``codec.elements.comment_text``), so bytes and characters are the same.
"""


class Entry(Struct, frozen=True, gc=False):
    """The value of an element of a verdict map: a verdict, and a comment ("" for none).

    The comment is truncated here, not only when it is encoded, so that an Entry read from a listing equals the one
    sent.
    """

    verdict: Verdict
    comment: str = ""

    def __post_init__(self) -> None:
        """Truncate the comment to the length that the kernel stores."""
        if len(self.comment) > COMMENT_BYTES:
            # The struct is frozen, so an assignment would raise.
            force_setattr(self, "comment", self.comment[:COMMENT_BYTES])


class ElementTimeout(Struct, frozen=True, gc=False):
    """The timeout of an element of a dynamic set, and the time until it expires, both in seconds."""

    timeout: int
    expires: int


Value = Entry | Target | EndpointId | ElementTimeout | None
"""An element's value: None in a set, ElementTimeout in a dynamic set."""


class ArrayName(Struct, frozen=True, gc=False):
    """The name of an array: the elements of ``container`` whose keys are ``prefix`` and an index from 0."""

    container: str
    prefix: Key


Array = Sequence[Target | EndpointId | None]
"""The targets or endpoint IDs of one array by index; None where the kernel has no element with that index. A tuple or a
PackedArray."""


class Hook(Struct, frozen=True):
    """The hook that a base chain is attached to."""

    type: Literal["filter", "nat"]
    hook: Literal["prerouting", "input", "forward", "output", "postrouting"]
    priority: int


class Chain(Struct, frozen=True, weakref=True):
    """A chain; with a hook it is a base chain with policy accept."""

    name: str
    rules: tuple[Rule, ...] = ()
    hook: Hook | None = None

    def target_chains(self) -> tuple[str, ...]:
        """Return the chains that its rules jump or go to, without those in verdicts of the maps that they use."""
        statements = (statement for rule in self.rules for statement in rule.statements)
        return tuple(statement.chain for statement in statements if isinstance(statement, Goto | Jump))


class Container(Struct, frozen=True):
    """The declaration of a set or map; a set has no ``data``.

    ``key`` and ``data`` are nft text that follows ``type``, or ``typeof`` if ``by_expression``. With ``dynamic_size``
    it is a dynamic set: rules add elements with timeouts, up to that number.
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

    @property
    def has_counters(self) -> bool:
        """Whether each element counts the packets that match it."""
        return False


class CountingSet(Container, frozen=True):
    """The declaration of a set whose elements count the packets that match them."""

    @property
    def has_counters(self) -> bool:
        """Whether each element counts the packets that match it."""
        return True


class Contents(Struct):
    """The elements of a table's containers, or a subset of them, and the chains that belong to Service ports.

    ``entries`` are elements of verdict maps, ``arrays`` those of maps by index, and ``members`` those of sets. The keys
    of ``entries``, and ``members``, are pairs of a container's name and an element's key.
    """

    entries: dict[tuple[str, Key], Entry]
    arrays: dict[ArrayName, Array]
    members: set[tuple[str, Key]]
    chains: dict[str, Chain] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> "Contents":
        """Return empty contents."""
        return cls({}, {}, set(), {})

    @classmethod
    def merged(cls, parts: Iterable["Contents"]) -> "Contents":
        """Return the union of all parts."""
        joined = cls.empty()
        for part in parts:
            joined.update(part)
        return joined

    def update(self, other: "Contents") -> None:
        """Add the contents of ``other``."""
        self.entries.update(other.entries)
        self.arrays.update(other.arrays)
        self.members |= other.members
        self.chains.update(other.chains)

    def without(self, other: "Contents") -> "Contents":
        """Return the contents without those that ``other`` has under the same names and keys."""
        return Contents(
            {position: entry for position, entry in self.entries.items() if position not in other.entries},
            {name: array for name, array in self.arrays.items() if name not in other.arrays},
            self.members - other.members,
            {name: chain for name, chain in self.chains.items() if name not in other.chains},
        )

    def elements(self) -> dict[str, dict[Key, Value]]:
        """Return all elements by container, sorted by key."""
        found: dict[str, dict[Key, Value]] = {}
        for (container, key), entry in self.entries.items():
            found.setdefault(container, {})[key] = entry
        for name, array in self.arrays.items():
            into = found.setdefault(name.container, {})
            into.update(((*name.prefix, index), target) for index, target in enumerate(array) if target is not None)
        for container, key in self.members:
            found.setdefault(container, {})[key] = None
        return {name: dict(sorted(found[name].items())) for name in sorted(found)}


class NamedObject(Struct, frozen=True, order=True):
    """An object of a table that is not a rule or an element: its kind in nft's words (``ct helper``), and its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Return both as text for a log; other programs choose names, so unprintable characters are replaced."""
        return f"{self.kind} {''.join(letter if letter.isprintable() else '?' for letter in self.name)}"


class Table(Struct, frozen=True):
    """A whole table, as it is created.

    With ``owned`` it has the flags ``owner`` and ``persist``: only the creating process can change it, and it outlives
    that process.
    """

    family: NftFamily
    name: str
    comment: str
    containers: tuple[Container, ...]
    chains: tuple[Chain, ...]
    elements: Mapping[str, Mapping[Key, Value]]
    owned: bool = False
