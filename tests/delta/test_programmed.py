"""What is sent to the kernel is the difference to what it holds, and never more."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.delta.diff import ContentsDiff, diff_contents
from knft.delta.programmed import MAX_DELAY_SECONDS, EmptiedChain, ProgrammedContents
from knft.nft.expressions import Drop, Goto, Rule
from knft.nft.objects import ArrayName, Chain, Contents, Entry, Key, Target, Value
from tests.support.kube_objects import parametrize_rows, steady

Elements = dict[str, dict[Key, Value]]
Wanted = dict[str, Contents | None]
Member = tuple[str, Key]


class Kernel:
    """The elements of a table, as strict as the kernel is about what is there and what is not."""

    def __init__(self) -> None:
        """Start empty."""
        self.elements: Elements = {}

    def apply(self, changes: ContentsDiff) -> None:
        """Remove first, then add: the order within a transaction."""
        for container, keys in changes.removed.items():
            for key in keys:
                assert key in self.elements[container], f"{key} is removed from {container} but is not there"
                del self.elements[container][key]
        for container, added in changes.added.items():
            held = self.elements.setdefault(container, {})
            for key, value in added.items():
                assert key not in held, f"{key} is added to {container} but is there"
                held[key] = value
        self.elements = {container: held for container, held in self.elements.items() if held}


def _entry(chain: str, comment: str = "") -> Entry:
    return Entry(Goto(chain), comment)


def _contents(
    entries: Mapping[Member, Entry] | None = None,
    arrays: Mapping[ArrayName, tuple[Target | None, ...]] | None = None,
    members: tuple[Member, ...] = (),
) -> Contents:
    return Contents(dict(entries or {}), dict(arrays or {}), set(members))


def _union(owners: Mapping[str, Contents | None]) -> Elements:
    joined = Contents.empty()
    for contents in owners.values():
        if contents is not None:
            joined.update(contents)
    return {container: elements for container, elements in joined.elements().items() if elements}


class Delta(NamedTuple):
    """Contents before and after, and what is removed and added."""

    old: Contents
    new: Contents
    removed: dict[str, tuple[Key, ...]]
    added: Elements


FRONTEND: Member = ("service-ips", ("10.96.0.1", "tcp", 80))
ARRAY = ArrayName("endpoints-tcp", ("10.96.0.1", 80))
HAIRPIN: Member = ("hairpin", ("10.244.0.1", "10.244.0.1", "tcp", 80))
ONE, TWO, THREE = (("10.244.0.1", 80), ("10.244.0.2", 80), ("10.244.0.3", 80))


def _at(index: int) -> Key:
    return (*ARRAY.prefix, index)


DELTAS = {
    "nothing": Delta(_contents(), _contents(), {}, {}),
    "entry added": Delta(
        _contents(), _contents({FRONTEND: _entry("a")}), {}, {"service-ips": {FRONTEND[1]: _entry("a")}}
    ),
    "entry removed": Delta(_contents({FRONTEND: _entry("a")}), _contents(), {"service-ips": (FRONTEND[1],)}, {}),
    "entry with another verdict": Delta(
        _contents({FRONTEND: _entry("a")}),
        _contents({FRONTEND: _entry("b")}),
        {"service-ips": (FRONTEND[1],)},
        {"service-ips": {FRONTEND[1]: _entry("b")}},
    ),
    "entry with another comment": Delta(
        _contents({FRONTEND: _entry("a", "x")}),
        _contents({FRONTEND: _entry("a", "y")}),
        {"service-ips": (FRONTEND[1],)},
        {"service-ips": {FRONTEND[1]: _entry("a", "y")}},
    ),
    "entry unchanged": Delta(_contents({FRONTEND: _entry("a")}), _contents({FRONTEND: _entry("a")}), {}, {}),
    "member added": Delta(_contents(), _contents(members=(HAIRPIN,)), {}, {"hairpin": {HAIRPIN[1]: None}}),
    "member removed": Delta(_contents(members=(HAIRPIN,)), _contents(), {"hairpin": (HAIRPIN[1],)}, {}),
    "member unchanged": Delta(_contents(members=(HAIRPIN,)), _contents(members=(HAIRPIN,)), {}, {}),
    "array added": Delta(
        _contents(), _contents(None, {ARRAY: (ONE, TWO)}), {}, {"endpoints-tcp": {_at(0): ONE, _at(1): TWO}}
    ),
    "array removed": Delta(_contents(None, {ARRAY: (ONE, TWO)}), _contents(), {"endpoints-tcp": (_at(0), _at(1))}, {}),
    "array longer": Delta(
        _contents(None, {ARRAY: (ONE,)}), _contents(None, {ARRAY: (ONE, TWO)}), {}, {"endpoints-tcp": {_at(1): TWO}}
    ),
    "array shorter": Delta(
        _contents(None, {ARRAY: (ONE, TWO)}), _contents(None, {ARRAY: (ONE,)}), {"endpoints-tcp": (_at(1),)}, {}
    ),
    "the first removed, the last in its place": Delta(
        _contents(None, {ARRAY: (ONE, TWO, THREE)}),
        _contents(None, {ARRAY: (THREE, TWO)}),
        {"endpoints-tcp": (_at(0), _at(2))},
        {"endpoints-tcp": {_at(0): THREE}},
    ),
    "a hole filled": Delta(
        _contents(None, {ARRAY: (ONE, None, THREE)}),
        _contents(None, {ARRAY: (ONE, TWO, THREE)}),
        {},
        {"endpoints-tcp": {_at(1): TWO}},
    ),
    "an array with a hole removed": Delta(
        _contents(None, {ARRAY: (None, TWO)}), _contents(), {"endpoints-tcp": (_at(1),)}, {}
    ),
    "an array of nothing": Delta(_contents(None, {ARRAY: ()}), _contents(), {}, {}),
}


@parametrize_rows(DELTAS)
def test_diff_contains_each_changed_element(row: Delta) -> None:
    assert ContentsDiff(row.removed, row.added) == diff_contents(row.old, row.new)


@pytest.mark.parametrize("size", [1, 2, 64, 5000])
def test_replaced_target_changes_one_element_of_any_array(size: int) -> None:
    targets: list[Target | None] = [(f"10.244.{index >> 8}.{index & 255}", 80) for index in range(size)]
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply({"web": _contents(None, {ARRAY: tuple(targets)})})
    for index in {0, size // 2, size - 1}:
        replaced = [*targets[:index], ("10.245.0.1", 80), *targets[index + 1 :]]
        expected = ContentsDiff({"endpoints-tcp": (_at(index),)}, {"endpoints-tcp": {_at(index): ("10.245.0.1", 80)}})
        assert expected == programmed.diff({"web": _contents(None, {ARRAY: tuple(replaced)})})


OTHER: Member = ("hairpin", ("10.244.0.2", "10.244.0.2", "tcp", 80))
NO_CHANGES = ContentsDiff({}, {})
SHARED = _contents(members=(HAIRPIN,))


class Sharing(NamedTuple):
    """Who holds HAIRPIN, what owners want then, and whether it is removed or added."""

    holders: tuple[str, ...]
    wanted: Wanted
    expected: ContentsDiff


REMOVED = ContentsDiff({"hairpin": (HAIRPIN[1],)}, {})
ADDED = ContentsDiff({}, {"hairpin": {HAIRPIN[1]: None}})
SHARINGS = {
    "the first owner": Sharing((), {"a": SHARED}, ADDED),
    "the first two owners at once": Sharing((), {"a": SHARED, "b": SHARED}, ADDED),
    "a second owner": Sharing(("a",), {"b": SHARED}, NO_CHANGES),
    "one of two owners goes": Sharing(("a", "b"), {"a": None}, NO_CHANGES),
    "one of two owners wants it no more": Sharing(("a", "b"), {"a": _contents()}, NO_CHANGES),
    "the last owner goes": Sharing(("a",), {"a": None}, REMOVED),
    "two of two owners go at once": Sharing(("a", "b"), {"a": None, "b": None}, REMOVED),
    "two of three owners go at once": Sharing(("a", "b", "c"), {"a": None, "b": None}, NO_CHANGES),
    "one goes and another comes": Sharing(("a",), {"a": None, "b": SHARED}, NO_CHANGES),
    "the same owner once more": Sharing(("a",), {"a": SHARED}, NO_CHANGES),
    "an owner that never was goes": Sharing(("a",), {"x": None}, NO_CHANGES),
}


@parametrize_rows(SHARINGS)
def test_shared_member_is_removed_with_its_last_owner(row: Sharing) -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply(dict.fromkeys(row.holders, SHARED))
    assert row.expected == programmed.diff(row.wanted)


def test_entry_that_changes_owner_is_not_sent_again() -> None:
    """A frontend that another Service port takes over with the same verdict."""
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply({"a": _contents({FRONTEND: _entry("a")})})
    assert programmed.diff({"a": None, "b": _contents({FRONTEND: _entry("a")})}) == NO_CHANGES


def test_diff_does_not_change_the_programmed_contents() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    assert programmed.diff({"a": SHARED}) == ADDED
    assert programmed.diff({"a": SHARED}) == ADDED
    assert programmed.all_contents() == Contents.empty()


def test_owned_chains_are_written_if_changed_and_emptied_without_owner() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    old, new = Chain("sticky-1-cluster"), Chain("sticky-1-cluster", (Rule((Drop(),)),))
    kept, gone = Chain("sticky-1-local"), Chain("sticky-1-endpoint-0")
    programmed.apply({"a": Contents({}, {}, set(), {chain.name: chain for chain in (old, kept, gone)})})
    changes = programmed.diff({"a": Contents({}, {}, set(), {chain.name: chain for chain in (new, kept)})})
    assert changes == ContentsDiff({}, {}, (new,), ("sticky-1-endpoint-0",))


def test_emptied_chain_waits_for_deletion_unless_written_again() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.record_emptied(ContentsDiff({}, {}, (), ("a", "b", "c")), 5.0)
    programmed.record_emptied(ContentsDiff({}, {}, (Chain("b"),)), 6.0)
    programmed.record_deleted(["c"])
    assert programmed.emptied_chains == {"a": EmptiedChain(5.0)}


def test_refused_deletion_of_a_chain_backs_off() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.record_emptied(ContentsDiff({}, {}, (), ("a",)), 5.0)
    programmed.record_kept(["a", "b"], 6.1)
    assert programmed.emptied_chains == {"a": EmptiedChain(6.1, 2.0)}
    for _ in range(20):
        programmed.record_kept(["a"], 7.0)
    assert programmed.emptied_chains["a"].deletable_at == 7.0 + MAX_DELAY_SECONDS


def test_contents_of_owners_are_merged() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply({"a": SHARED, "b": _contents({FRONTEND: _entry("a")}, {ARRAY: (ONE,)}, (OTHER,))})
    expected = _contents({FRONTEND: _entry("a")}, {ARRAY: (ONE,)}, (HAIRPIN, OTHER))
    assert expected == programmed.merged_contents(["a", "b", "x"])
    assert _contents() == programmed.merged_contents(["x"])
    assert _contents(members=(HAIRPIN,)) == SHARED, "joining must not write into what an owner asked for"


_OWNERS = ("a", "b", "c", "d")
_targets = st.sampled_from([ONE, TWO, THREE])
_shared: list[Member] = [(name, (number,)) for name in ("hairpin", "cluster-ips") for number in range(3)]
_members = st.sets(st.sampled_from(_shared))
_chains = st.sampled_from([_entry("x"), _entry("y"), _entry("y", "said")])


@st.composite
def _contents_of(draw: st.DrawFn, owner: str, targets: st.SearchStrategy[Target | None] = _targets) -> Contents:
    """Return contents whose entries and arrays are this owner's alone, and whose members others may have as well."""
    places = st.sampled_from([("service-ips", (owner, 80)), ("service-ips", (owner, 81)), ("nodeports", (owner,))])
    arrays = st.sampled_from([ArrayName("endpoints-tcp", (owner, 80)), ArrayName("endpoints-udp", (owner, 80))])
    return Contents(
        draw(st.dictionaries(places, _chains)),
        draw(st.dictionaries(arrays, st.lists(targets, max_size=4).map(tuple))),
        draw(_members),
    )


_step = st.fixed_dictionaries({}, optional={owner: st.none() | _contents_of(owner) for owner in _OWNERS})
_handover = st.permutations(_OWNERS)
_found = st.fixed_dictionaries({}, optional={owner: _contents_of(owner, st.none() | _targets) for owner in _OWNERS})


def _held(found: Wanted) -> tuple[Kernel, ProgrammedContents[str]]:
    """Return a kernel that was found to hold this, with holes where elements were missing."""
    kernel, programmed = Kernel(), ProgrammedContents[str]()
    kernel.elements = _union(found)
    programmed.apply(found)
    return kernel, programmed


@steady
@given(_found, st.lists(_step, max_size=6))
def test_any_history_leaves_the_union_of_the_desired_contents(found: Wanted, history: list[Wanted]) -> None:
    """And nothing that is not there is removed, and nothing that is there is added: the kernel would refuse it."""
    kernel, programmed = _held(found)
    owners = dict(found)
    for wanted in history:
        kernel.apply(programmed.diff(wanted))
        programmed.apply(wanted)
        owners |= wanted
        assert _union(owners) == kernel.elements
        assert programmed.diff(owners) == NO_CHANGES


@steady
@given(_step, _handover)
def test_owners_that_swap_contents_cause_no_change(held: Wanted, order: list[str]) -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply(held)
    swapped = {new: held.get(old) for old, new in zip(_OWNERS, order, strict=True)}
    assert programmed.diff(swapped) == NO_CHANGES


@steady
@given(_found, _step)
def test_only_differences_are_sent(before: Wanted, after: Wanted) -> None:
    kernel, programmed = _held(before)
    old, changes = kernel.elements, programmed.diff(after)
    new = _union(before | after)
    differing = {
        (name, key)
        for name in old | new
        for key in old.get(name, {}) | new.get(name, {})
        if (key in old.get(name, {}), old.get(name, {}).get(key))
        != (key in new.get(name, {}), new.get(name, {}).get(key))
    }
    removed = {(name, key) for name, keys in changes.removed.items() for key in keys}
    assert differing == removed | {(name, key) for name, added in changes.added.items() for key in added}
