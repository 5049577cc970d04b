"""Reading elements by netlink gives what ``nft list table`` lists, for every kind of set and map that knft declares."""

import itertools
import random
import socket
from collections.abc import Callable, Iterator, Sequence

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.set_reader import SetReader
from knft.kernel.table import READ_ATTEMPTS, KernelTable
from knft.kernel.worker_messages import SetPart
from knft.nft.codec.listing import parse_listing
from knft.nft.codec.tables import declarations_text
from knft.nft.objects import Contents
from knft.render import layout
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import NamespacedLibrary, library_in
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel

FAMILIES = pytest.mark.parametrize("family", list(Family), ids=lambda family: family.value)

ENDPOINT_MAP = "typeof ip daddr . tcp dport . numgen random mod 65536 : ip daddr . tcp dport"
ID_MAP = "typeof ip daddr . tcp dport . numgen random mod 65536 : meta priority"


@pytest.fixture
def library(namespace: Namespace) -> NamespacedLibrary:
    return library_in(namespace)


def _listed(library: NamespacedLibrary, family: Family) -> Contents:
    """Return what libnftables lists twice in a row.

    A listing repeats some elements and lacks others while the kernel moves them to a larger hash table, after the
    transaction and perhaps later (docs/design/netlink-decoding.md#changes-during-a-dump).
    """
    listings = (parse_listing(library.run(f"list table {family.nft} knft")).contents for _ in range(100))
    return next(second for first, second in itertools.pairwise(listings) if first == second)


def _read(library: NamespacedLibrary, family: Family) -> Contents:
    listing = KernelTable(library, family, "knft").read()
    assert listing is not None
    assert listing.unreadable == frozenset()
    return listing.contents


class _Elements:
    """Random elements for each container of knft's layout, as nft text."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._random = random.Random(family.number)  # noqa: S311 - reproducible

    def address(self) -> str:
        number = self._random.randrange(1, 1 << 16)
        return f"10.0.{number >> 8}.{number & 255}" if self._family is Family.IPV4 else f"fd00::{number:x}:0:1"

    def frontend(self) -> str:
        return f"{self.address()} . {self.nodeport()}"

    def nodeport(self) -> str:
        return f"{self._random.choice(('tcp', 'udp', 'sctp'))} . {self.port()}"

    def port(self) -> int:
        return self._random.randrange(1, 1 << 16)

    def index(self) -> int:
        return self._random.randrange(40)

    def endpoint_id(self) -> int:
        return self._random.choice((self._random.randrange(1, 1 << 16), self._random.randrange(1, (1 << 32) - 1)))

    def cidr(self) -> str:
        first, length = self._random.randrange(256), self._random.choice((8, 12, 24, 30))
        if self._family is Family.IPV4:
            return f"{first}.{first & 240}.0.0/{length}"
        return f"fd{first:02x}::/{length}"

    def verdict(self, key: str) -> str:
        name = self._random.choice(("", ' comment "ns/name:http"'))
        return f"{key}{name} : {self._random.choice(('goto reject-chain', 'drop', 'jump reject-chain', 'accept'))}"


def _commands(family: Family) -> Iterator[str]:
    elements = _Elements(family)
    where = f"{family.nft} knft"
    yield f"add chain {where} reject-chain"
    written = {
        "cluster-ips": {elements.address() for _ in range(500)},
        "hairpin-connections": {f"{elements.address()} . {elements.frontend()}" for _ in range(20)},
        "source-ranges": {f"{elements.frontend()} . {elements.cidr()}" for _ in range(50)}
        | {f"{elements.frontend()} . {elements.address()}" for _ in range(50)},
        "service-ips": {elements.verdict(elements.frontend()) for _ in range(100)},
        "service-nodeports": {elements.verdict(elements.nodeport()) for _ in range(100)},
        "wide-endpoints-tcp-7": {f"7 . 0 . {index} : {elements.address()} . {elements.port()}" for index in range(30)},
        "wide-endpoint-ids": {f"7 . 0 . {index} : {elements.endpoint_id()}" for index in range(30)},
        "nodeport-endpoint-ids-udp": {
            f"{port} . {elements.index()} : {elements.endpoint_id()}" for port in range(300, 320)
        },
        "nodeport-endpoints-udp": {
            f"{port} . {elements.index()} : {elements.address()} . {elements.port()}" for port in range(300, 320)
        },
        # More than one buffer of the kernel.
        "endpoints-tcp": {
            f"{elements.address()} . {elements.port()} . {elements.index()} : {elements.address()} . {elements.port()}"
            for _ in range(2000)
        },
        "endpoint-ids-tcp": {
            f"{elements.address()} . {elements.port()} . {elements.index()} : {elements.endpoint_id()}"
            for _ in range(2000)
        },
    }
    for name, texts in written.items():
        yield f"add element {where} {name} {{ {', '.join(sorted(texts))} }}"


def _fill(library: NamespacedLibrary, family: Family) -> None:
    library.run(declarations_text(layout.declarations(family)))
    for command in _commands(family):
        library.run(command)


@FAMILIES
def test_elements_are_those_that_nft_lists(library: NamespacedLibrary, family: Family) -> None:
    _fill(library, family)

    # A listing lacks some elements while the kernel moves them to a larger hash table.
    wait_until(lambda: _read(library, family) == _listed(library, family), "the elements are not those of nft")

    found = _read(library, family)
    assert len(found.members) > 500
    assert len(found.arrays) > 2000


@pytest.mark.parametrize(
    "elements",
    [
        "0.0.0.0/0",
        "0.0.0.0/8, 255.0.0.0/8",
        "10.0.0.0/24, 10.0.1.0/24",
        "10.0.0.1, 10.0.0.3, 192.168.0.0/16",
        "255.255.255.255",
        "128.0.0.0/1, 0.0.0.0/1",
    ],
)
def test_intervals_are_those_that_nft_lists(library: NamespacedLibrary, elements: str) -> None:
    library.run(declarations_text(layout.declarations(Family.IPV4)))
    library.run(f"add element ip knft pod-cidrs {{ {elements} }}")

    found = _read(library, Family.IPV4).members

    assert found == _listed(library, Family.IPV4).members
    assert len(found) == elements.count(",") + 1


def test_ipv6_intervals_and_addresses_are_those_that_nft_lists(library: NamespacedLibrary) -> None:
    library.run(declarations_text(layout.declarations(Family.IPV6)))
    library.run("add element ip6 knft pod-cidrs { fd00::/8, ff00::/8, 2001:db8::1 }")
    library.run("add element ip6 knft cluster-ips { ::1.2.3.4, ::ffff:1.2.3.4, 1::, ::1 }")

    found = _read(library, Family.IPV6).members

    assert found == _listed(library, Family.IPV6).members
    assert ("cluster-ips", ("::102:304",)) in found


@pytest.mark.parametrize(
    "declaration",
    [
        "set odd { type ipv4_addr; flags interval; elements = { 10.0.0.1-10.0.0.9 }; }",
        "set odd { type ether_addr; elements = { 00:11:22:33:44:55 }; }",
        "map odd { type ipv4_addr : mark; elements = { 10.0.0.1 : 7 }; }",
        "map odd { type ipv4_addr : verdict; flags interval; elements = { 10.0.0.0/8 : drop }; }",
        f"map odd {{ {ENDPOINT_MAP}; elements = {{ 10.0.0.1 . 80 . 4294967295 : 10.0.0.2 . 80 }}; }}",
        f"map odd {{ {ID_MAP}; elements = {{ 10.0.0.1 . 80 . 65536 : 7 }}; }}",
        "map odd { typeof ip daddr . tcp dport : meta priority; elements = { 10.0.0.1 . 80 : 7 }; }",
        "map odd { typeof ip daddr . numgen random mod 65536 : meta mark; elements = { 10.0.0.1 . 0 : 7 }; }",
    ],
    ids=["range", "type", "value", "interval map", "huge index", "huge index of an ID", "ID without index", "mark"],
)
def test_elements_that_knft_never_writes_make_a_set_unreadable(library: NamespacedLibrary, declaration: str) -> None:
    """A huge index would be an array of as many elements."""
    library.run(f"table ip knft {{\n{declaration}\n}}")

    listing = KernelTable(library, Family.IPV4, "knft").read()

    assert listing is not None
    assert listing.unreadable == {"odd"}
    assert listing.contents == Contents.empty()


def test_comments_timeouts_and_counters_of_elements_do_not_count(library: NamespacedLibrary) -> None:
    targets = '10.0.0.1 . 80 . 0 comment "foreign" : 10.0.0.2 . 80, 10.0.0.1 . 80 . 1 : 10.0.0.3 . 80'
    library.run(
        "table ip knft {\n"
        "set cluster-ips { type ipv4_addr; counter; elements = { 10.0.0.1 counter packets 5 bytes 7 } }\n"
        f"map endpoints-tcp {{ {ENDPOINT_MAP}; elements = {{ {targets} }} }}\n"
        "}"
    )

    found = _read(library, Family.IPV4)

    assert found == _listed(library, Family.IPV4)
    assert list(found.arrays.values()) == [(("10.0.0.2", 80), ("10.0.0.3", 80))]


def test_missing_set_is_an_error(library: NamespacedLibrary) -> None:
    library.run("add table ip knft")
    with pytest.raises(KernelError, match="cannot read the elements of 'gone'"):
        library.dump_elements(socket.AF_INET, "knft", ["gone"], SetReader("gone").receive)


class _ObservedLibrary:
    """Counts dumps and their buffers, and calls ``on_buffer`` before a buffer is passed on."""

    def __init__(self, library: NamespacedLibrary, on_buffer: Callable[[], None]) -> None:
        self._library = library
        self._on_buffer = on_buffer
        self.dumps = self.buffers = 0
        self.names: list[tuple[str, ...]] = []

    def run(self, commands: str, *, terse: bool = False) -> str:
        return self._library.run(commands, terse=terse)

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        self.dumps += 1
        self.names.append(tuple(names))

        def observe(part: SetPart) -> None:
            self.buffers += 1
            self._on_buffer()
            receive(part)

        self._library.dump_elements(family, table, names, observe)


_MEMBERS = [f"10.0.{number >> 8}.{number & 255}" for number in range(20_000)]
"""Elements of so many buffers that the pipe from the worker process holds only a part of them."""

_CHANGED_BUFFER = 3
"""One of the first buffers of a dump; the first one is the declaration."""


def _change(namespace: Namespace, operation: str, members: Sequence[str]) -> None:
    namespace.run(["nft", "-f", "-"], stdin=f"{operation} element ip knft cluster-ips {{ {', '.join(members)} }}\n")


@pytest.fixture
def large_set(namespace: Namespace) -> Namespace:
    namespace.run(["nft", "-f", "-"], stdin="table ip knft {\nset cluster-ips { type ipv4_addr; }\n}\n")
    _change(namespace, "add", _MEMBERS)
    return namespace


def test_elements_deleted_during_a_dump_do_not_hide_others(large_set: Namespace, library: NamespacedLibrary) -> None:
    """The kernel continues a dump at the number of elements that it has listed."""
    deleted = _MEMBERS[::10]

    def delete() -> None:
        if observed.buffers == _CHANGED_BUFFER:
            _change(large_set, "delete", deleted)

    observed = _ObservedLibrary(library, delete)

    listing = KernelTable(observed, Family.IPV4, "knft").read()

    assert listing is not None
    expected = {("cluster-ips", (each,)) for each in set(_MEMBERS) - set(deleted)}
    assert expected - listing.contents.members == set()
    assert listing.contents.members - expected == set()


def test_only_sets_with_transactions_during_their_dump_are_read_again(
    large_set: Namespace, library: NamespacedLibrary
) -> None:
    """The set after it is read again, too: the kernel may still have removed elements during its dump."""
    sets = "".join(f"set {name} {{ type ipv4_addr; elements = {{ 10.9.9.9 }}; }}\n" for name in ("a", "d", "e"))
    large_set.run(["nft", "-f", "-"], stdin=f"table ip knft {{\n{sets}}}\n")

    def change() -> None:
        if observed.buffers == _CHANGED_BUFFER + len(("declaration", "elements", "last part of a")):
            _change(large_set, "delete", _MEMBERS[:1])

    observed = _ObservedLibrary(library, change)

    listing = KernelTable(observed, Family.IPV4, "knft").read()

    assert listing is not None
    assert observed.names == [("a", "cluster-ips", "d", "e"), ("cluster-ips", "d")]
    assert len(listing.contents.members) == len(_MEMBERS) - 1 + 3


def test_transactions_on_another_table_do_not_prevent_reading(large_set: Namespace, library: NamespacedLibrary) -> None:
    large_set.run(["nft", "add", "table", "ip", "other"])

    def change_other() -> None:
        large_set.run(["nft", "add", "chain", "ip", "other", f"chain-{observed.buffers}"])

    observed = _ObservedLibrary(library, change_other)

    listing = KernelTable(observed, Family.IPV4, "knft").read()

    assert listing is not None
    assert len(listing.contents.members) == len(_MEMBERS)
    # One more if the kernel was still resizing the hash table during the first one, which changes the order.
    assert observed.dumps in (1 + 1, 1 + 2)


def test_set_that_keeps_changing_is_an_error(large_set: Namespace, library: NamespacedLibrary) -> None:
    changed_in: set[int] = set()

    def change_once_in_each_dump() -> None:
        if observed.dumps not in changed_in:
            changed_in.add(observed.dumps)
            _change(large_set, "delete", [_MEMBERS[observed.dumps]])

    observed = _ObservedLibrary(library, change_once_in_each_dump)

    with pytest.raises(KernelError, match="cannot read the elements of 'cluster-ips': it changed during each of"):
        KernelTable(observed, Family.IPV4, "knft").read()

    assert observed.dumps == READ_ATTEMPTS


class _RepeatingLibrary(_ObservedLibrary):
    """Repeats the elements of the first dump, as the kernel may repeat elements while it resizes a hash table."""

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        parts: list[SetPart] = []
        super().dump_elements(family, table, names, parts.append)
        declaration, *elements, last = parts
        for part in (declaration, *elements, *(elements if self.dumps == 1 else ()), last):
            receive(part)


@pytest.mark.parametrize(
    "declaration",
    [
        "set odd { type ipv4_addr; elements = { 10.0.0.1 }; }",
        "map odd { type ipv4_addr : verdict; elements = { 10.0.0.1 : drop }; }",
        f"map odd {{ {ENDPOINT_MAP}; elements = {{ 10.0.0.1 . 80 . 0 : 10.0.0.2 . 80 }}; }}",
        f"map odd {{ {ID_MAP}; elements = {{ 10.0.0.1 . 80 . 0 : 7 }}; }}",
    ],
    ids=["set", "verdict map", "endpoint map", "map of endpoint IDs"],
)
def test_dump_with_repeated_elements_is_read_again(library: NamespacedLibrary, declaration: str) -> None:
    library.run(f"table ip knft {{\n{declaration}\n}}")
    repeating = _RepeatingLibrary(library, lambda: None)

    listing = KernelTable(repeating, Family.IPV4, "knft").read()

    assert listing is not None
    assert listing.contents == _listed(library, Family.IPV4)
    assert repeating.dumps == 1 + 1


def test_listing_reads_neither_elements_nor_other_tables(namespace: Namespace, library: NamespacedLibrary) -> None:
    """Libnftables 1.0.6 needs 2 KB of memory for an element, and as much for a rule."""
    namespace.run(["nft", "-f", "-"], stdin="table ip knft {\nset cluster-ips { type ipv4_addr; }\n}\n")
    table = KernelTable(library, Family.IPV4, "knft")
    assert table.read() is not None
    peak_before = library.peak_memory()
    _change(namespace, "add", _MEMBERS)
    rules = "counter accept\n" * 4000  # With a longer listing, the worker would be replaced, and its peak with it.
    namespace.run(["nft", "-f", "-"], stdin=f"table ip other {{\nchain mine {{\n{rules}}}\n}}\n")

    listing = table.read()

    assert listing is not None
    assert listing.containers == {"cluster-ips"}
    assert not listing.rule_counts
    assert library.peak_memory() - peak_before < 4 << 20


def test_missing_table_is_read_as_none(library: NamespacedLibrary) -> None:
    assert KernelTable(library, Family.IPV4, "knft").read() is None
