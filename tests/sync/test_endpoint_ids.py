"""Endpoints of Service ports with session affinity keep their IDs, so that clients keep their endpoints."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.nft.objects import ArrayName, EndpointId, Hook, Target
from knft.nft.transaction import Transaction
from knft.render.names import endpoint_ids_map
from knft.sync.invalidation import Invalidation
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.refused_services import refuse_address

STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}
SHORT: dict[str, Any] = STICKY | {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}
WIDE: dict[str, Any] = STICKY | {"externalIPs": [f"198.51.100.{number}" for number in range(1, 40)]}
LOCAL: dict[str, Any] = STICKY | {"externalTrafficPolicy": "Local"}


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a Service with session affinity, and others."""
    harness = MemoryHarness()
    harness.apply(
        *(service("sticky", 30, **STICKY), *slices("sticky", range(1, 31), local=[1])),
        *(service("web", 10), *slices("web", [51, 52])),
        *(service("other", 40, **STICKY), *slices("other", [1, 2])),
    )
    harness.sync()
    return harness


def _sync_later(harness: MemoryHarness) -> None:
    harness.now += 1.0
    harness.sync()


def _ids(harness: MemoryHarness) -> dict[Target, EndpointId]:
    """Return the ID of each endpoint of the Service: the same one in all arrays."""
    own = {harness.state.service_port(name): name for name in harness.state.service_ports() if name.name == "sticky"}
    (name,) = own.values()
    number = harness.proxier._writer.wide.get(name)
    arrays, found = harness.table.listing().contents.arrays, dict[Target, EndpointId]()
    for array, targets in arrays.items():
        ids = arrays.get(ArrayName(endpoint_ids_map(array.container), array.prefix))
        if "endpoints" in array.container and ids is not None and array.prefix[0] != "10.96.0.40":
            assert array.prefix[0] == number or number is None
            for target, endpoint_id in zip(targets, ids, strict=True):
                assert isinstance(target, tuple)
                assert isinstance(endpoint_id, int)
                assert found.setdefault(target, endpoint_id) == endpoint_id
    assert len(set(found.values())) == len(found)
    return found


def _common(before: dict[Target, EndpointId], after: dict[Target, EndpointId]) -> set[Target]:
    """Return the endpoints that have kept their IDs."""
    return {target for target, endpoint_id in before.items() if after.get(target) == endpoint_id}


def test_endpoint_keeps_its_id_while_others_come_and_go(harness: MemoryHarness) -> None:
    before = _ids(harness)
    for numbers in (range(2, 31), range(5, 40), range(20, 70, 2), [22, 24]):
        harness.apply(*slices("sticky", numbers))
        _sync_later(harness)
        after = _ids(harness)
        assert _common(before, after) == before.keys() & after.keys()
        before = after
    assert len(before) == 2


@pytest.mark.parametrize("has_restarted", [False, True], ids=["", "restarted"])
def test_endpoint_that_is_added_again_gets_a_new_id(harness: MemoryHarness, *, has_restarted: bool) -> None:
    """Clients of the removed endpoint were sent to others meanwhile."""
    seen = [_ids(harness)]
    for numbers in (range(2, 31), range(1, 31)) * 3:
        harness.apply(*slices("sticky", numbers))
        if has_restarted:
            harness = harness.restarted()
        _sync_later(harness)
        seen.append(_ids(harness))
    of_first = [ids[target] for ids in seen for target in ids if target[0] == "10.244.2.1"]
    assert len(set(of_first)) == len(of_first) == 4
    assert _common(seen[0], seen[-1]) == {target for target in seen[0] if target[0] != "10.244.2.1"}


@pytest.mark.parametrize("has_restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("interlude", ["affinity removed", "Service deleted"])
def test_service_port_with_affinity_again_has_new_ids(
    harness: MemoryHarness, interlude: str, *, has_restarted: bool
) -> None:
    before = _ids(harness)
    if interlude == "Service deleted":
        harness.delete("Service", "sticky")
    else:
        harness.apply(service("sticky", 30))
    _sync_later(harness)
    assert {name.prefix for name in harness.table.listing().contents.arrays if "ids" in name.container} == {
        ("10.96.0.40", 80)
    }
    if has_restarted:
        harness = harness.restarted()
    harness.apply(service("sticky", 30, **STICKY))
    _sync_later(harness)
    assert _common(before, _ids(harness)) == set()
    assert before.keys() == _ids(harness).keys()


@pytest.mark.parametrize(
    "changed",
    [
        service("sticky", 30, **SHORT),
        service("sticky", 30, node_port=30080, **STICKY),
        service("sticky", 30, node_port=30080, **LOCAL),
        service("sticky", 30, **WIDE),
        service("sticky", 30, node_port=30080, **(WIDE | LOCAL)),
    ],
    ids=["timeout", "NodePort", "policy Local", "wide", "wide, policy Local"],
)
def test_changed_service_and_the_changes_back_keep_the_ids(harness: MemoryHarness, changed: dict[str, Any]) -> None:
    before = _ids(harness)
    for item in (changed, service("sticky", 30, **STICKY)):
        harness.apply(item)
        _sync_later(harness)
        assert _ids(harness) == before
        assert harness.differences() == []


def test_service_port_keeps_the_ids_although_all_frontends_change(harness: MemoryHarness) -> None:
    """The port of a Service changes: kube-proxy has a set of clients for each endpoint, and keeps it."""
    before = _ids(harness)
    changed = service("sticky", 30, **STICKY)
    changed["spec"]["ports"][0]["port"] = 8443
    harness.apply(changed, *slices("sticky", range(3, 40)))
    _sync_later(harness)
    assert len(_common(before, _ids(harness))) == 28
    assert len(_ids(harness)) == 37


def test_ports_that_exchange_their_numbers_keep_their_ids(harness: MemoryHarness) -> None:
    def two_ports(http: int, alt: int) -> dict[str, Any]:
        item = service("sticky", 30, **STICKY)
        (port,) = item["spec"]["ports"]
        item["spec"]["ports"] = [
            port | {"name": name, "port": number} for name, number in (("http", http), ("alt", alt))
        ]
        return item

    (one,) = [item for item in slices("sticky", [1, 2]) if item["addressType"] == "IPv4"]
    one["ports"] = [one["ports"][0] | {"name": name} for name in ("http", "alt")]
    harness.apply(two_ports(80, 81), one)
    _sync_later(harness)

    def ids(number: int) -> dict[Any, Any]:
        arrays, prefix = harness.table.listing().contents.arrays, ("10.96.0.30", number)
        found = (arrays[ArrayName(name, prefix)] for name in ("endpoints-tcp", "endpoint-ids-tcp"))
        return dict(zip(*found, strict=True))

    before = ids(80), ids(81)
    assert before[0] != before[1]
    harness.apply(two_ports(81, 80))
    _sync_later(harness)
    assert (ids(81), ids(80)) == before


def test_orphaned_frontend_does_not_give_back_former_ids(harness: MemoryHarness) -> None:
    """Clients were assigned again while the endpoint did not exist."""

    def with_addresses(*addresses: str) -> dict[str, Any]:
        policy = {"internalTrafficPolicy": "Local", "externalIPs": list(addresses)}
        return service("sticky", 30, node_port=30080, **policy, **STICKY)

    harness.apply(with_addresses("198.51.100.7"), *slices("sticky", [1, 2], local=[1]))
    _sync_later(harness)
    harness.table.on_commit = refuse_address("198.51.100.7")
    for item in (with_addresses(), *slices("sticky", [1], local=[1]), *slices("sticky", [1, 2], local=[1])):
        harness.apply(item)
        _sync_later(harness)
    ids = ArrayName("nodeport-endpoint-ids-tcp", (30080,))
    before = list(harness.table.listing().contents.arrays[ids])
    harness.table.stop_failing()
    harness.apply(with_addresses("198.51.100.7"))
    _sync_later(harness)
    assert list(harness.table.listing().contents.arrays[ids]) == before


def test_new_frontend_gets_the_ids_of_the_others(harness: MemoryHarness) -> None:
    """Also in the sync in which an endpoint is added, and its index differs in each map."""
    harness.apply(service("sticky", 30, **STICKY), *slices("sticky", [5, 3, 9, 4]))
    _sync_later(harness)
    before = _ids(harness)
    harness.apply(service("sticky", 30, node_port=30080, **LOCAL), *slices("sticky", [5, 9, 70, 4], local=[4, 70]))
    _sync_later(harness)
    assert len(_common(before, _ids(harness))) == 3
    assert len(_ids(harness)) == 4


def test_restart_keeps_all_ids_and_sends_nothing(harness: MemoryHarness) -> None:
    harness.apply(service("sticky", 30, node_port=30080, **LOCAL), service("other", 40, **WIDE))
    _sync_later(harness)
    before = harness.table.listing()
    second = harness.restarted()
    _sync_later(second)
    assert second.last_transaction.is_empty
    assert second.table.listing() == before
    assert second.differences() == []


def _replace_table(harness: MemoryHarness) -> None:
    chain = harness.table.chains["filter-input"]
    harness.table.chains["filter-input"] = structs.replace(chain, hook=Hook("filter", "input", 7))
    harness.proxier.invalidate(Invalidation(declarations=True))


def _fail(harness: MemoryHarness, when: str, times: int, error: Exception) -> None:
    """Let requests fail that many times, before or after they are executed."""
    left = [error] * times

    def fail(_: object) -> None:
        if left:
            raise left.pop()

    setattr(harness.table, when, fail)


FAILURES: dict[str, Callable[[MemoryHarness], object]] = {
    "nothing": lambda _: None,
    "full sync": lambda harness: harness.proxier.invalidate(Invalidation(declarations=True)),
    "refused once": lambda harness: _fail(harness, "on_commit", 1, KernelError("refused")),
    "refused twice": lambda harness: _fail(harness, "on_commit", 2, KernelError("refused")),
    "refused three times": lambda harness: _fail(harness, "on_commit", 3, KernelError("refused")),
    "refused until the table is replaced": lambda harness: _fail(harness, "on_commit", 4, KernelError("refused")),
    "committed, but refused": lambda harness: _fail(harness, "after_commit", 1, KernelError("refused")),
    "committed before a timeout": lambda harness: _fail(harness, "after_commit", 1, UnavailableError("timeout")),
    "library died": lambda harness: _fail(harness, "on_commit", 1, LibraryDiedError("died")),
    "replaced table": _replace_table,
}


@pytest.mark.parametrize("has_restarted", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_failed_sync_keeps_the_ids(
    harness: MemoryHarness, failure: Callable[[MemoryHarness], object], *, has_restarted: bool
) -> None:
    """Those of removed endpoints are not used again, and those of added ones are the same in all arrays."""
    before = _ids(harness)
    harness.apply(service("sticky", 30, node_port=30080, **LOCAL), *slices("sticky", range(3, 35), local=[5, 6]))
    if has_restarted:
        harness = harness.restarted()
    _sync_with_failure(harness, failure)
    assert len(_ids(harness)) == 32
    assert len(_common(before, _ids(harness))) == 28
    assert harness.differences() == []


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_failed_sync_after_a_restart_keeps_the_ids_of_unchanged_service_ports(
    harness: MemoryHarness, failure: Callable[[MemoryHarness], object]
) -> None:
    before, web = _ids(harness), harness.table.elements["endpoints-tcp"]["10.96.0.10", 80, 0]
    harness = harness.restarted()
    harness.apply(service("new", 70), *slices("new", [71]), *slices("web", [51, 53]))
    _sync_with_failure(harness, failure)
    assert _ids(harness) == before
    assert harness.table.elements["endpoints-tcp"]["10.96.0.10", 80, 0] == web


def _sync_with_failure(harness: MemoryHarness, failure: Callable[[MemoryHarness], object]) -> None:
    failure(harness)
    try:
        _sync_later(harness)
    except UnavailableError:
        _sync_later(harness)
    harness.table.stop_failing()
    _sync_later(harness)


def test_ids_of_a_possible_commit_are_adopted(harness: MemoryHarness) -> None:
    """It may have happened: then new clients have got these IDs."""
    harness.apply(*slices("sticky", range(1, 41)))

    def stop(transaction: Transaction) -> None:
        if transaction.added:
            harness.table.on_read = lambda: _raise(UnavailableError("timeout"))
            _raise(UnavailableError("timeout"))

    harness.table.after_commit = stop
    with pytest.raises(UnavailableError):
        _sync_later(harness)
    harness.table.stop_failing()
    committed = _ids(harness)
    assert len(committed) == 40
    _sync_later(harness)
    assert _ids(harness) == committed


@pytest.mark.parametrize("has_restarted", [False, True], ids=["", "restarted"])
def test_ids_are_kept_after_quarantine(harness: MemoryHarness, *, has_restarted: bool) -> None:
    before = _ids(harness)
    harness.apply(*slices("sticky", range(3, 35)))
    if has_restarted:
        harness = harness.restarted()
    harness.table.on_commit = refuse_address("10.96.0.30")
    for _ in range(3):
        assert [name.name for name in harness.sync().quarantined] == ["sticky"]
        assert _ids(harness) == before
        harness.now += 10_000.0
    harness.table.stop_failing()
    assert harness.sync().quarantined == {}
    assert len(_ids(harness)) == 32
    assert len(_common(before, _ids(harness))) == 28
    assert harness.differences() == []


def test_ids_are_kept_if_all_service_ports_are_committed_alone_after_a_replacement(harness: MemoryHarness) -> None:
    """The kernel refuses the whole table, because of one Service port."""
    before = _ids(harness)
    _replace_table(harness)
    harness.apply(service("bad", 99), *slices("bad", [99]))
    harness.table.on_commit = refuse_address("10.96.0.99")

    def refuse(table: object) -> None:
        if any("10.96.0.99" in key for found in table.elements.values() for key in found):  # type: ignore[attr-defined]
            msg = "refused"
            raise KernelError(msg)

    harness.table.on_replace = refuse
    harness.now += 1.0
    assert [name.name for name in harness.sync().quarantined] == ["bad"]
    assert _ids(harness) == before


@pytest.mark.parametrize("first_kind", ["Service", "EndpointSlice"])
@pytest.mark.parametrize("item", [service("sticky", 30, **STICKY), service("sticky", 30, **WIDE)], ids=["", "wide"])
def test_ids_are_kept_while_objects_are_unknown(harness: MemoryHarness, item: dict[str, Any], first_kind: str) -> None:
    """After a restart, a sync may know Services without their endpoints, or the other way round."""
    harness.apply(item)
    _sync_later(harness)
    before = _ids(harness)
    second = MemoryHarness(harness.table, now=harness.now)
    second.proxier.hold_removals()
    for is_first in (True, False):
        for (kind, name), each in harness.objects.items():
            if (kind == first_kind) == is_first:
                second.change(kind, name, each)
        _sync_later(second)
    assert _ids(second) == before
    second.proxier.release_removals()
    _sync_later(second)
    assert _ids(second) == before
    assert second.differences() == []


def test_endpoint_with_several_ids_gets_one(harness: MemoryHarness) -> None:
    """Another program has changed a map."""
    harness.apply(service("sticky", 30, node_port=30080, **STICKY))
    _sync_later(harness)
    ids = harness.table.elements["nodeport-endpoint-ids-tcp"]
    ids.update(dict.fromkeys(list(ids)[:3], 7))
    harness.proxier.invalidate(Invalidation())
    _sync_later(harness)
    assert len(_ids(harness)) == 30
    assert harness.differences() == []


@pytest.mark.parametrize("damaged", ["endpoint-ids-tcp", "endpoints-tcp"])
def test_lost_ids_are_replaced(harness: MemoryHarness, damaged: str) -> None:
    """Another program has emptied a map; the kernel then does not know any more which endpoint a client had."""
    harness.table.elements[damaged].clear()
    harness.proxier.invalidate(Invalidation())
    _sync_later(harness)
    assert len(_ids(harness)) == 30
    assert harness.differences() == []


def test_removed_id_is_not_sent_with_the_same_transaction(harness: MemoryHarness) -> None:
    """An element that changes is removed and added."""
    harness.apply(*slices("sticky", range(2, 32)))
    sent: list[Transaction] = []
    harness.table.after_commit = sent.append
    _sync_later(harness)
    (only,) = [each for each in sent if each.added]
    assert set(only.removed["endpoint-ids-tcp"]) == only.added["endpoint-ids-tcp"].keys()
    assert len(only.added["endpoint-ids-tcp"]) == len(only.added["endpoints-tcp"]) == 1


def _raise(error: Exception) -> None:
    raise error
