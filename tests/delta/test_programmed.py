"""ProgrammedContents and its diffs: a sync sends only the elements that differ from the kernel's."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.delta.diff import ContentsDiff, diff_contents
from knft.delta.programmed import ProgrammedContents
from knft.nft.expressions import Goto
from knft.nft.objects import ArrayName, Chain, Contents, Entry, Key, Target, Value
from tests.support.kube_objects import parametrize_cases, without_deadline

Elements = dict[str, dict[Key, Value]]
OwnerContents = dict[str, Contents | None]
Member = tuple[str, Key]


class FakeTable:
    """The elements of a table; like the kernel, it refuses to remove missing elements and to add existing ones."""

    def __init__(self) -> None:
        """Start empty."""
        self.elements: Elements = {}

    def apply(self, changes: ContentsDiff) -> None:
        """Remove elements, then add elements, as in a transaction."""
        for container, keys in changes.removed.items():
            for key in keys:
                assert key in self.elements[container], f"{key} is removed from {container}, which does not contain it"
                del self.elements[container][key]
        for container, added in changes.added.items():
            elements = self.elements.setdefault(container, {})
            for key, value in added.items():
                assert key not in elements, f"{key} is added to {container}, which contains it"
                elements[key] = value
        self.elements = {container: elements for container, elements in self.elements.items() if elements}


def _entry(chain: str, comment: str = "") -> Entry:
    return Entry(Goto(chain), comment)


def _contents(
    entries: Mapping[Member, Entry] | None = None,
    arrays: Mapping[ArrayName, tuple[Target | None, ...]] | None = None,
    members: tuple[Member, ...] = (),
) -> Contents:
    return Contents(dict(entries or {}), dict(arrays or {}), set(members))


def _union(owners: Mapping[str, Contents | None]) -> Elements:
    merged = Contents.empty()
    for contents in owners.values():
        if contents is not None:
            merged.update(contents)
    return {container: elements for container, elements in merged.elements().items() if elements}


class DiffCase(NamedTuple):
    """Contents before and after, and the removed and added elements."""

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


DIFFS = {
    "no contents": DiffCase(_contents(), _contents(), {}, {}),
    "entry added": DiffCase(
        _contents(), _contents({FRONTEND: _entry("a")}), {}, {"service-ips": {FRONTEND[1]: _entry("a")}}
    ),
    "entry removed": DiffCase(_contents({FRONTEND: _entry("a")}), _contents(), {"service-ips": (FRONTEND[1],)}, {}),
    "entry with a different verdict": DiffCase(
        _contents({FRONTEND: _entry("a")}),
        _contents({FRONTEND: _entry("b")}),
        {"service-ips": (FRONTEND[1],)},
        {"service-ips": {FRONTEND[1]: _entry("b")}},
    ),
    "entry with a different comment": DiffCase(
        _contents({FRONTEND: _entry("a", "x")}),
        _contents({FRONTEND: _entry("a", "y")}),
        {"service-ips": (FRONTEND[1],)},
        {"service-ips": {FRONTEND[1]: _entry("a", "y")}},
    ),
    "entry unchanged": DiffCase(_contents({FRONTEND: _entry("a")}), _contents({FRONTEND: _entry("a")}), {}, {}),
    "member added": DiffCase(_contents(), _contents(members=(HAIRPIN,)), {}, {"hairpin": {HAIRPIN[1]: None}}),
    "member removed": DiffCase(_contents(members=(HAIRPIN,)), _contents(), {"hairpin": (HAIRPIN[1],)}, {}),
    "member unchanged": DiffCase(_contents(members=(HAIRPIN,)), _contents(members=(HAIRPIN,)), {}, {}),
    "array added": DiffCase(
        _contents(), _contents(None, {ARRAY: (ONE, TWO)}), {}, {"endpoints-tcp": {_at(0): ONE, _at(1): TWO}}
    ),
    "array removed": DiffCase(
        _contents(None, {ARRAY: (ONE, TWO)}), _contents(), {"endpoints-tcp": (_at(0), _at(1))}, {}
    ),
    "array longer": DiffCase(
        _contents(None, {ARRAY: (ONE,)}), _contents(None, {ARRAY: (ONE, TWO)}), {}, {"endpoints-tcp": {_at(1): TWO}}
    ),
    "array shorter": DiffCase(
        _contents(None, {ARRAY: (ONE, TWO)}), _contents(None, {ARRAY: (ONE,)}), {"endpoints-tcp": (_at(1),)}, {}
    ),
    "first target replaced by the last": DiffCase(
        _contents(None, {ARRAY: (ONE, TWO, THREE)}),
        _contents(None, {ARRAY: (THREE, TWO)}),
        {"endpoints-tcp": (_at(0), _at(2))},
        {"endpoints-tcp": {_at(0): THREE}},
    ),
    "missing array element added": DiffCase(
        _contents(None, {ARRAY: (ONE, None, THREE)}),
        _contents(None, {ARRAY: (ONE, TWO, THREE)}),
        {},
        {"endpoints-tcp": {_at(1): TWO}},
    ),
    "array with a missing element removed": DiffCase(
        _contents(None, {ARRAY: (None, TWO)}), _contents(), {"endpoints-tcp": (_at(1),)}, {}
    ),
    "empty array": DiffCase(_contents(None, {ARRAY: ()}), _contents(), {}, {}),
}


@parametrize_cases(DIFFS)
def test_diff_contains_each_changed_element(case: DiffCase) -> None:
    assert ContentsDiff(case.removed, case.added) == diff_contents(case.old, case.new)


@pytest.mark.parametrize("size", [1, 2, 64, 5000])
def test_replaced_target_changes_one_element_whatever_the_array_size(size: int) -> None:
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


class SharingCase(NamedTuple):
    """The owners of HAIRPIN, the desired contents of owners, and the expected diff."""

    owners: tuple[str, ...]
    desired: OwnerContents
    expected: ContentsDiff


REMOVED = ContentsDiff({"hairpin": (HAIRPIN[1],)}, {})
ADDED = ContentsDiff({}, {"hairpin": {HAIRPIN[1]: None}})
SHARINGS = {
    "first owner": SharingCase((), {"a": SHARED}, ADDED),
    "first two owners at once": SharingCase((), {"a": SHARED, "b": SHARED}, ADDED),
    "second owner": SharingCase(("a",), {"b": SHARED}, NO_CHANGES),
    "one of two owners is removed": SharingCase(("a", "b"), {"a": None}, NO_CHANGES),
    "one of two owners no longer has it": SharingCase(("a", "b"), {"a": _contents()}, NO_CHANGES),
    "last owner is removed": SharingCase(("a",), {"a": None}, REMOVED),
    "both owners are removed at once": SharingCase(("a", "b"), {"a": None, "b": None}, REMOVED),
    "two of three owners are removed at once": SharingCase(("a", "b", "c"), {"a": None, "b": None}, NO_CHANGES),
    "one owner is replaced by another": SharingCase(("a",), {"a": None, "b": SHARED}, NO_CHANGES),
    "unchanged owner": SharingCase(("a",), {"a": SHARED}, NO_CHANGES),
    "unknown owner is removed": SharingCase(("a",), {"x": None}, NO_CHANGES),
}


@parametrize_cases(SHARINGS)
def test_shared_member_is_removed_with_its_last_owner(case: SharingCase) -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply(dict.fromkeys(case.owners, SHARED))
    assert case.expected == programmed.diff(case.desired)


def test_entry_that_changes_owner_is_not_sent_again() -> None:
    """An example is a frontend that moves to another Service port and keeps its verdict."""
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply({"a": _contents({FRONTEND: _entry("a")})})
    assert programmed.diff({"a": None, "b": _contents({FRONTEND: _entry("a")})}) == NO_CHANGES


def test_diff_does_not_change_the_programmed_contents() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    assert programmed.diff({"a": SHARED}) == ADDED
    assert programmed.diff({"a": SHARED}) == ADDED
    assert programmed.all_contents() == Contents.empty()


NAME = ArrayName("endpoints-tcp", ("10.96.0.1", 80))
TARGETS = (("10.244.0.1", 8080), ("10.244.0.2", 8080))
MEMBER = ("cluster-ips", ("10.96.0.1",))


def _found() -> ProgrammedContents[str]:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply({"found": _contents({FRONTEND: _entry("a")}, {NAME: TARGETS}, (MEMBER,))})
    return programmed


def test_claimed_contents_belong_to_their_owner() -> None:
    programmed, claimed = _found(), _contents({FRONTEND: _entry("a")}, {NAME: TARGETS}, (MEMBER,))
    assert programmed.claim("found", "a", claimed)
    assert programmed.get("a") == claimed
    assert programmed.get("found") == Contents.empty()
    assert programmed.all_contents() == claimed
    assert programmed.diff({"found": None}) == NO_CHANGES
    assert programmed.diff({"a": None}).removed == {
        FRONTEND[0]: (FRONTEND[1],),
        NAME.container: tuple((*NAME.prefix, index) for index in range(len(TARGETS))),
        MEMBER[0]: (MEMBER[1],),
    }


@pytest.mark.parametrize(
    "contents",
    [
        _contents({FRONTEND: _entry("b")}, {NAME: TARGETS}, (MEMBER,)),
        _contents({FRONTEND: _entry("a")}, {NAME: TARGETS[:1]}, (MEMBER,)),
        _contents({FRONTEND: _entry("a")}, {NAME: TARGETS}, (MEMBER, ("cluster-ips", ("10.96.0.2",)))),
        Contents({}, {}, set(), {"wide-1-cluster": Chain("wide-1-cluster")}),
    ],
    ids=["other verdict", "fewer endpoints", "further member", "chain"],
)
def test_contents_that_differ_from_those_found_are_not_claimed(contents: Contents) -> None:
    programmed = _found()
    assert not programmed.claim("found", "a", contents)
    assert programmed.get("a") is None
    assert programmed.all_contents() == _found().all_contents()


def test_claimed_member_of_two_owners_stays_with_the_second() -> None:
    programmed = _found()
    for owner in ("a", "b"):
        assert programmed.claim("found", owner, _contents(members=(MEMBER,)))
    programmed.apply({"found": None})
    assert programmed.diff({"a": None}) == NO_CHANGES
    programmed.apply({"a": None})
    assert programmed.diff({"b": None}).removed == {MEMBER[0]: (MEMBER[1],)}


def test_contents_are_claimed_once() -> None:
    programmed = _found()
    assert programmed.claim("found", "a", _contents({FRONTEND: _entry("a")}))
    assert not programmed.claim("found", "b", _contents({FRONTEND: _entry("a")}))
    assert not programmed.claim("found", "a", _contents(members=(MEMBER,)))


@pytest.mark.parametrize("size", [1, 100])
def test_contents_of_any_size_are_returned_as_they_were_recorded(size: int) -> None:
    """Small contents are stored as tuples."""
    entries: dict[Member, Entry] = {("service-ips", ("10.96.0.1", "tcp", port)): _entry("a") for port in range(size)}
    contents = _contents(entries, {NAME: TARGETS}, (MEMBER,))
    contents.chains["wide-1-cluster"] = Chain("wide-1-cluster")
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply({"a": contents})
    programmed.add_chains("a", {"wide-1-local": Chain("wide-1-local")})
    expected = Contents(entries, {NAME: TARGETS}, {MEMBER}, contents.chains | {"wide-1-local": Chain("wide-1-local")})
    assert programmed.get("a") == expected
    assert programmed.all_contents() == expected
    assert programmed.merged_contents(["a", "b"]) == expected


def test_contents_of_owners_are_merged() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply({"a": SHARED, "b": _contents({FRONTEND: _entry("a")}, {ARRAY: (ONE,)}, (OTHER,))})
    expected = _contents({FRONTEND: _entry("a")}, {ARRAY: (ONE,)}, (HAIRPIN, OTHER))
    assert expected == programmed.merged_contents(["a", "b", "x"])
    assert _contents() == programmed.merged_contents(["x"])
    assert _contents(members=(HAIRPIN,)) == SHARED, "merging must not change the contents of an owner"


_OWNERS = ("a", "b", "c", "d")
_targets = st.sampled_from([ONE, TWO, THREE])
_shareable_members: list[Member] = [(name, (number,)) for name in ("hairpin", "cluster-ips") for number in range(3)]
_members = st.sets(st.sampled_from(_shareable_members))
_entries = st.sampled_from([_entry("x"), _entry("y"), _entry("y", "comment")])


@st.composite
def _contents_of(draw: st.DrawFn, owner: str, targets: st.SearchStrategy[Target | None] = _targets) -> Contents:
    """Return contents with entries and arrays of this owner only, and members that owners may share."""
    members = st.sampled_from([("service-ips", (owner, 80)), ("service-ips", (owner, 81)), ("nodeports", (owner,))])
    arrays = st.sampled_from([ArrayName("endpoints-tcp", (owner, 80)), ArrayName("endpoints-udp", (owner, 80))])
    ids = st.lists(st.integers(1, 3), max_size=4).map(tuple)
    return Contents(
        draw(st.dictionaries(members, _entries)),
        draw(st.dictionaries(arrays, st.lists(targets, max_size=4).map(tuple)))
        | draw(st.dictionaries(st.just(ArrayName("endpoint-ids-tcp", (owner, 80))), ids)),
        draw(_members),
    )


_step = st.fixed_dictionaries({}, optional={owner: st.none() | _contents_of(owner) for owner in _OWNERS})
_owner_orders = st.permutations(_OWNERS)
_initial_contents = st.fixed_dictionaries(
    {}, optional={owner: _contents_of(owner, st.none() | _targets) for owner in _OWNERS}
)


def _programmed_table(initial: OwnerContents) -> tuple[FakeTable, ProgrammedContents[str]]:
    """Return a table with these contents, and a ProgrammedContents that has read it."""
    table, programmed = FakeTable(), ProgrammedContents[str]()
    table.elements = _union(initial)
    programmed.apply(initial)
    return table, programmed


@without_deadline
@given(_initial_contents, st.lists(_step, max_size=6))
def test_any_history_leaves_the_union_of_the_desired_contents(
    initial: OwnerContents, history: list[OwnerContents]
) -> None:
    """No missing element is removed and no existing one is added; the kernel would refuse the transaction."""
    table, programmed = _programmed_table(initial)
    owners = dict(initial)
    for desired in history:
        table.apply(programmed.diff(desired))
        programmed.apply(desired)
        owners |= desired
        assert _union(owners) == table.elements
        assert programmed.diff(owners) == NO_CHANGES


@without_deadline
@given(_step, _owner_orders)
def test_owners_that_swap_contents_cause_no_change(contents: OwnerContents, order: list[str]) -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.apply(contents)
    swapped = {new: contents.get(old) for old, new in zip(_OWNERS, order, strict=True)}
    assert programmed.diff(swapped) == NO_CHANGES


@without_deadline
@given(_initial_contents, _step)
def test_only_differences_are_sent(before: OwnerContents, after: OwnerContents) -> None:
    table, programmed = _programmed_table(before)
    old, changes = table.elements, programmed.diff(after)
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


def test_contents_of_all_owners_but_some() -> None:
    contents: ProgrammedContents[str] = ProgrammedContents()
    entries: dict[str, dict[Member, Entry]] = {name: {("service-ips", (name,)): _entry("pool-tcp-1")} for name in "abc"}
    contents.apply({name: _contents(found) for name, found in entries.items()})
    assert contents.all_contents() == _contents(entries["a"] | entries["b"] | entries["c"])
    assert contents.all_contents({"b", "d"}) == _contents(entries["a"] | entries["c"])


def test_member_stays_until_its_last_owner_leaves() -> None:
    contents: ProgrammedContents[str] = ProgrammedContents()
    member = ("cluster-ips", ("10.96.0.1",))
    for _ in range(2):
        contents.apply({name: _contents(members=(member,)) for name in "abc"})
    removed = []
    for name in "abc":
        removed.append(contents.diff({name: None}).removed)
        contents.apply({name: None})
        assert contents.get(name) is None
    assert removed == [{}, {}, {"cluster-ips": (("10.96.0.1",),)}]


def test_changed_endpoint_ids_are_replaced() -> None:
    """With the endpoints whose IDs they are, and only those that differ."""
    endpoints, ids = ArrayName("endpoints-tcp", ("a", 80)), ArrayName("endpoint-ids-tcp", ("a", 80))
    before = Contents({}, {endpoints: (ONE, TWO), ids: (7, 8)}, set())
    after = Contents({}, {endpoints: (ONE, THREE, TWO), ids: (7, 9, 8)}, set())
    diff = diff_contents(before, after)
    assert diff.removed == {"endpoints-tcp": (("a", 80, 1),), "endpoint-ids-tcp": (("a", 80, 1),)}
    assert diff.added == {
        "endpoints-tcp": {("a", 80, 1): THREE, ("a", 80, 2): TWO},
        "endpoint-ids-tcp": {("a", 80, 1): 9, ("a", 80, 2): 8},
    }


def test_arrays_after_an_unchanged_one_are_compared() -> None:
    same, changed = ArrayName("endpoints-tcp", ("a", 80)), ArrayName("endpoints-tcp", ("b", 80))
    targets: tuple[Target, ...] = (("10.244.0.1", 8080),)
    diff = diff_contents(_contents(arrays={same: targets, changed: targets}), _contents(arrays={same: targets}))
    assert diff.removed == {"endpoints-tcp": (("b", 80, 0),)}
