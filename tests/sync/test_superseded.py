"""Which elements wait for the cleanup phase, because packets in flight may still look them up."""

from collections.abc import Mapping
from typing import Any

import pytest

from knft.delta.diff import ContentsDiff
from knft.delta.programmed import ProgrammedContents
from knft.nft.expressions import Drop, Goto
from knft.nft.objects import Array, ArrayName, Chain, Contents, EndpointId, Entry, Key
from knft.render.names import (
    CLUSTER_IPS,
    HAIRPIN,
    NO_ENDPOINT_NODEPORTS,
    NO_ENDPOINT_SERVICES,
    REJECT_CHAIN,
    SERVICE_IPS,
    SERVICE_NODEPORTS,
    SOURCE_RANGES,
    endpoint_ids_map,
)
from knft.sync.superseded import Superseded, defer_unreachable, find_superseded
from knft.sync.table_snapshot import Owner, SpecialOwner
from tests.support.kube_objects import port_name

WEB, API = port_name(), port_name(service="api")
FRONTEND: Key = ("10.96.0.1", "tcp", 80)
RANGE: Key = (*FRONTEND, "192.0.2.0/24")
COPIES, WIDE = ArrayName("endpoints-tcp", ("10.96.0.1", 80)), ArrayName("wide-endpoints-tcp-0", (8, 0))
OTHER = ArrayName("endpoints-tcp", ("10.96.0.2", 80))
NUMBER, NUMBER_TABLE = ArrayName("hashed-numbers-tcp", COPIES.prefix), ArrayName("hashed-endpoints-tcp", (1 << 30, 0))
TARGETS = (("10.244.0.1", 8080),)


def _contents(
    array: ArrayName, *chains: str, frontend: tuple[str, Key] = (SERVICE_IPS, FRONTEND), ranges: tuple[Key, ...] = ()
) -> Contents:
    """Return the contents of a Service port with one array, these chains of its own, and source ranges."""
    members = {(SOURCE_RANGES, key) for key in ranges} | {(CLUSTER_IPS, ("10.96.0.1",))}
    verdict = Goto(chains[0] if chains else "pool-tcp-1")
    return Contents({frontend: Entry(verdict)}, {array: TARGETS}, members, {name: Chain(name) for name in chains})


def _ids(endpoints: ArrayName) -> ArrayName:
    return ArrayName(endpoint_ids_map(endpoints.container), endpoints.prefix)


def _superseded(before: Mapping[Owner, Contents], after: Mapping[Owner, Contents | None]) -> Superseded:
    programmed: ProgrammedContents[Owner] = ProgrammedContents()
    programmed.apply(before)
    return find_superseded(programmed, after)


NOTHING = Superseded()


@pytest.mark.parametrize("frontend", [(SERVICE_IPS, FRONTEND), (SERVICE_NODEPORTS, ("tcp", 30080))])
def test_endpoints_and_ranges_of_the_former_layout_are_superseded(frontend: tuple[str, Key]) -> None:
    before = _contents(COPIES, frontend=frontend, ranges=(RANGE,))
    wide = _contents(WIDE, "wide-8-cluster", frontend=frontend)
    assert Superseded(frozenset({COPIES}), frozenset({RANGE})) == _superseded({WEB: before}, {WEB: wide})
    assert Superseded(frozenset({WIDE}), frozenset()) == _superseded({WEB: wide}, {WEB: before})


def test_tables_of_hashes_have_no_old_indexes() -> None:
    """A table that gets smaller keeps slot 0, to which the second rule of its chain leads."""
    large = Contents({}, {NUMBER: (1 << 30,), NUMBER_TABLE: TARGETS * 3}, set())
    small = Contents({}, {NUMBER: (1 << 30,), NUMBER_TABLE: TARGETS}, set())
    assert _superseded({WEB: large}, {WEB: small}) == NOTHING


def test_old_index_of_an_endpoint_with_affinity_is_superseded() -> None:
    """The last one moves to the index of the removed one; without affinity, and at the end, nothing waits."""
    ids = _ids(COPIES)
    first, second, third = ((f"10.244.0.{number}", 8080) for number in (1, 2, 3))

    def contents(*endpoints: tuple[Any, EndpointId], has_ids: bool = True) -> Contents:
        arrays: dict[ArrayName, Array] = {COPIES: tuple(target for target, _ in endpoints)}
        return Contents({}, arrays | ({ids: tuple(each for _, each in endpoints)} if has_ids else {}), set(), {})

    before = ((first, EndpointId(1)), (second, EndpointId(2)), (third, EndpointId(3)))
    moved = _superseded({WEB: contents(*before)}, {WEB: contents(before[2], before[1])})
    assert moved == Superseded(moved=frozenset({(name.container, (*name.prefix, 2)) for name in (COPIES, ids)}))
    # After a start or a failure, what was found in the kernel belongs to no Service port yet.
    assert _superseded({SpecialOwner.UNCLAIMED: contents(*before)}, {WEB: contents(before[2], before[1])}) == moved
    assert _superseded({WEB: contents(*before)}, {WEB: contents(*before[:2])}) == NOTHING
    assert _superseded({WEB: contents(*before)}, {WEB: contents()}) == NOTHING
    without = contents(*before, has_ids=False), contents(before[2], before[1], has_ids=False)
    assert _superseded({WEB: without[0]}, {WEB: without[1]}) == NOTHING


def test_other_frontend_supersedes_nothing() -> None:
    """A packet to the former frontend gets an outcome of the state before or after the change."""
    other = _contents(OTHER, frontend=(SERVICE_IPS, ("10.96.0.2", "tcp", 80)))
    assert _superseded({WEB: _contents(COPIES, ranges=(RANGE,))}, {WEB: other}) == NOTHING


LOCAL = ArrayName("local-endpoints-tcp", COPIES.prefix)


@pytest.mark.parametrize(
    ("before", "after", "superseded"),
    [
        pytest.param((COPIES,), (LOCAL,), (COPIES,), id="internal policy changed"),
        pytest.param((COPIES, LOCAL), (COPIES,), (LOCAL,), id="external policy changed"),
        pytest.param((COPIES,), (NUMBER, NUMBER_TABLE), (COPIES,), id="hashed"),
        pytest.param((NUMBER, NUMBER_TABLE), (COPIES,), (NUMBER, NUMBER_TABLE), id="no longer hashed"),
        pytest.param((COPIES, _ids(COPIES)), (LOCAL, _ids(LOCAL)), (COPIES, _ids(COPIES)), id="policy of a sticky one"),
        pytest.param((COPIES, _ids(COPIES)), (COPIES,), (), id="no longer sticky"),
    ],
)
@pytest.mark.parametrize("frontend", [(SERVICE_IPS, FRONTEND), (SERVICE_NODEPORTS, ("tcp", 80))])
def test_maps_that_a_served_frontend_no_longer_uses_are_superseded(
    before: tuple[ArrayName, ...],
    after: tuple[ArrayName, ...],
    superseded: tuple[ArrayName, ...],
    frontend: tuple[str, Key],
) -> None:
    def named(name: ArrayName) -> ArrayName:
        is_nodeport = frontend[0] == SERVICE_NODEPORTS and name.prefix == COPIES.prefix
        return ArrayName(name.container, (80,)) if is_nodeport else name

    def contents(names: tuple[ArrayName, ...]) -> Contents:
        return Contents({frontend: Entry(Goto("pool-tcp-1"))}, dict.fromkeys(map(named, names), TARGETS), set())

    found = _superseded({WEB: contents(before)}, {WEB: contents(after)})
    assert found == Superseded(frozenset(map(named, superseded)))
    assert _superseded({WEB: contents(before)}, {WEB: Contents.empty()}) == NOTHING


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(None, id="deleted"),
        pytest.param(Contents({(NO_ENDPOINT_SERVICES, FRONTEND): Entry(Drop())}, {}, set()), id="without endpoints"),
    ],
)
def test_service_port_that_serves_nobody_supersedes_nothing(after: Contents | None) -> None:
    assert _superseded({WEB: _contents(WIDE, "wide-8-cluster", ranges=(RANGE,))}, {WEB: after}) == NOTHING


def test_new_service_port_supersedes_nothing() -> None:
    assert _superseded({}, {WEB: _contents(WIDE, "wide-8-cluster")}) == NOTHING


def test_array_that_another_owner_has_now_is_not_superseded() -> None:
    """Two Service ports exchange a frontend while both change their chains."""
    before: dict[Owner, Contents] = {WEB: _contents(COPIES), API: _contents(OTHER)}
    after: dict[Owner, Contents | None] = {
        WEB: _contents(WIDE, "wide-8-cluster"),
        API: _contents(COPIES, "wide-9-cluster"),
    }
    assert frozenset({OTHER}) == _superseded(before, after).arrays


def test_found_arrays_are_superseded_without_their_ranges() -> None:
    """Unclaimed ranges have no known chain. New ranges may overlap them, so they are removed in the main phase."""
    found = _contents(COPIES, ranges=(RANGE,))
    for after in (None, Contents.empty()):
        assert Superseded(frozenset({COPIES}), frozenset()) == _superseded(
            {SpecialOwner.UNCLAIMED: found}, {SpecialOwner.UNCLAIMED: after}
        )
    kept: dict[Owner, Contents | None] = {SpecialOwner.UNCLAIMED: None, WEB: _contents(COPIES)}
    assert _superseded({SpecialOwner.UNCLAIMED: found}, kept) == NOTHING


def test_each_owner_is_examined() -> None:
    """One that supersedes nothing does not end the search."""
    before: dict[Owner, Contents] = {WEB: _contents(COPIES), API: _contents(OTHER)}
    after: dict[Owner, Contents | None] = {WEB: _contents(COPIES), API: _contents(WIDE, "wide-8-cluster")}
    assert frozenset({OTHER}) == _superseded(before, after).arrays


NODEPORT: Key = ("tcp", 30080)
REJECT = Entry(Goto(REJECT_CHAIN))


@pytest.mark.parametrize(
    ("rejecting", "serving", "key", "verdict", "is_deferred"),
    [
        pytest.param(NO_ENDPOINT_NODEPORTS, SERVICE_NODEPORTS, NODEPORT, REJECT, True, id="NodePort"),
        pytest.param(NO_ENDPOINT_SERVICES, SERVICE_IPS, ("203.0.113.1", "tcp", 80), REJECT, True, id="external IP"),
        pytest.param(NO_ENDPOINT_SERVICES, SERVICE_IPS, FRONTEND, REJECT, False, id="cluster IP"),
        pytest.param(NO_ENDPOINT_SERVICES, SERVICE_IPS, FRONTEND, Entry(Drop()), True, id="cluster IP, dropped"),
    ],
)
def test_rejection_of_a_frontend_that_gets_an_endpoint_is_superseded(
    rejecting: str, serving: str, key: Key, verdict: Entry, *, is_deferred: bool
) -> None:
    """A packet that was not translated before the commit is rejected after it, too."""
    members: set[tuple[str, Key]] = {(CLUSTER_IPS, ("10.96.0.1",))}
    before = Contents({(rejecting, key): verdict}, {}, members)
    served = Contents({(serving, key): Entry(Goto("pool-tcp-1"))}, {}, members)
    rejections = frozenset({(rejecting, key)} if is_deferred else ())
    assert Superseded(rejections=rejections) == _superseded({WEB: before}, {WEB: served})
    assert _superseded({WEB: before}, {WEB: before}) == NOTHING
    assert _superseded({WEB: before}, {WEB: None}) == NOTHING


def test_only_rejections_of_frontends_that_are_served_now_are_superseded() -> None:
    """The first frontend still rejects, the second is gone; after these the third, which is served, is found too."""
    rejecting, gone, served = ((f"203.0.113.{number}", "tcp", 80) for number in range(1, 4))
    before = Contents({(NO_ENDPOINT_SERVICES, key): REJECT for key in (rejecting, gone, served)}, {}, set())
    after = Contents(
        {
            (NO_ENDPOINT_SERVICES, rejecting): REJECT,
            (SERVICE_IPS, rejecting): Entry(Goto("pool-tcp-1")),
            (SERVICE_IPS, served): Entry(Goto("pool-tcp-1")),
        },
        {},
        set(),
    )
    assert Superseded(rejections=frozenset({(NO_ENDPOINT_SERVICES, served)})) == _superseded(
        {WEB: before}, {WEB: after}
    )


def test_superseded_elements_are_removed_in_the_cleanup_phase() -> None:
    superseded = Superseded(frozenset({COPIES}), frozenset({RANGE}))
    hairpin, late, other = ("10.244.0.1", "10.244.0.1", "tcp", 8080), (*COPIES.prefix, 0), (*OTHER.prefix, 0)
    removed: dict[str, tuple[Key, ...]] = {
        HAIRPIN: (hairpin,),
        SOURCE_RANGES: (RANGE, (*FRONTEND, "198.51.100.0/24")),
        "endpoints-tcp": (late, other),
        SERVICE_IPS: (FRONTEND,),
    }
    main, deferred = superseded.split(ContentsDiff(removed, {}))
    assert main == {
        SOURCE_RANGES: ((*FRONTEND, "198.51.100.0/24"),),
        "endpoints-tcp": (other,),
        SERVICE_IPS: (FRONTEND,),
    }
    assert deferred == {HAIRPIN: (hairpin,), SOURCE_RANGES: (RANGE,), "endpoints-tcp": (late,)}


@pytest.mark.parametrize(
    ("container", "key", "waits"),
    [
        ("endpoints-tcp", (*COPIES.prefix, 0), True),
        (SOURCE_RANGES, RANGE, True),
        ("endpoints-tcp", (*OTHER.prefix, 0), False),
        (SOURCE_RANGES, (*FRONTEND, "198.51.100.0/24"), False),
        (HAIRPIN, ("10.244.0.1", "10.244.0.1", "tcp", 8080), False),
    ],
)
def test_endpoints_and_ranges_that_packets_with_old_verdicts_use_need_a_wait(
    container: str, key: Key, *, waits: bool
) -> None:
    superseded = Superseded(frozenset({COPIES}), frozenset({RANGE}))
    assert superseded.need_wait({container: (key,)}) is waits
    assert not superseded.need_wait({})
    assert not Superseded().need_wait({container: (key,)})


def test_element_of_another_set_with_the_key_of_a_superseded_range_is_not_included() -> None:
    superseded = Superseded(frozenset(), frozenset({RANGE}))
    assert superseded.includes(SOURCE_RANGES, RANGE)
    assert not superseded.includes(CLUSTER_IPS, RANGE)


def test_changed_value_of_a_superseded_element_is_replaced_in_the_main_phase() -> None:
    superseded = Superseded(frozenset({COPIES}), frozenset())
    changed, gone = (*COPIES.prefix, 0), (*COPIES.prefix, 1)
    diff = ContentsDiff({"endpoints-tcp": (changed, gone)}, {"endpoints-tcp": {changed: ("10.244.0.9", 8080)}})
    assert superseded.split(diff) == ({"endpoints-tcp": (changed,)}, {"endpoints-tcp": (gone,)})


MAP, KEPT, LATE = "endpoints-tcp", ("10.96.0.1", 80, 0), ("10.96.0.1", 80, 1)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_many_unreachable_endpoints_are_removed_in_the_cleanup_phase(size: int) -> None:
    """Except endpoint 0 and replaced ones. What is not an endpoint is removed in the main phase."""
    replaced: Key = ("10.96.0.1", 80, 2)
    removed: dict[str, tuple[Key, ...]] = {
        SERVICE_IPS: (FRONTEND,),
        MAP: (KEPT, LATE, replaced),
        "endpoints-udp": (("10.96.0.2", 53, 5),),
    }
    main, late = defer_unreachable(removed, {MAP: (replaced,)}, size)
    if size == 2:
        assert (main, late) == (removed, {})
    else:
        assert main == {SERVICE_IPS: (FRONTEND,), MAP: (KEPT, replaced)}
        assert late == {MAP: (LATE,), "endpoints-udp": (("10.96.0.2", 53, 5),)}


def test_ids_that_rules_for_known_clients_look_up_are_removed_in_the_main_phase() -> None:
    """Otherwise a client of a removed endpoint is sent to it until the cleanup phase."""
    ids = "endpoint-ids-tcp"
    shrunk: list[Key] = [("10.96.0.1", 80, index) for index in range(1, 9)]
    gone: list[Key] = [("10.96.0.2", 80, index) for index in range(3)]
    main, late = defer_unreachable({ids: (*shrunk, *gone), MAP: (*shrunk, *gone)}, {}, 3)
    # One endpoint is left: its chain has rules for the indexes 0 to 3.
    assert main == {ids: (*shrunk[:3], gone[0]), MAP: (gone[0],)}
    assert late == {ids: (*shrunk[3:], *gone[1:]), MAP: (*shrunk, *gone[1:])}


def test_ranges_of_several_service_ports_are_superseded() -> None:
    other: Key = ("10.96.0.2", "tcp", 80, "192.0.2.0/24")
    before: dict[Owner, Contents] = {WEB: _contents(COPIES, ranges=(RANGE,)), API: _contents(OTHER, ranges=(other,))}
    after: dict[Owner, Contents | None] = {
        WEB: _contents(WIDE, "wide-8-cluster"),
        API: _contents(ArrayName("wide-endpoints-tcp-0", (9, 0)), "wide-9-cluster"),
    }
    assert frozenset({RANGE, other}) == _superseded(before, after).source_ranges
