"""One poisonous Service port does not stop the others. What is refused here, the kernel itself refuses."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from knft.errors import KernelError, LibraryDiedError
from knft.model.names import Family
from knft.nft.objects import Key
from knft.nft.transaction import Transaction
from knft.render.names import CLUSTER_IPS, SERVICE_CIDRS, SERVICE_IPS, SOURCE_RANGES, STICKY_ENDPOINTS
from knft.sync.doubts import Doubt
from tests.kernel.harness import KernelHarness, held_by_fresh_start, service, slices
from tests.kernel.poison import COUNT, Clock, many, refusing
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
PAUSE = 30.0


def _frontend(number: int) -> Key:
    return f"10.96.0.{number}", "tcp", 80


def _meddler(namespace: Namespace, keys: Collection[Key], *, times: int = 1000) -> Callable[[Transaction], None]:
    """Return somebody who deletes elements just before knft does, and adds them with another value just before knft."""
    left = [times]

    def nft(command: str, key: Key, value: str = "") -> None:
        element = " . ".join(map(str, key)) + value
        namespace.run(["nft", f"{command} element ip knft {SERVICE_IPS} {{ {element} }}"], check=False)

    def meddle(transaction: Transaction) -> None:
        for key in keys:
            if not left[0]:
                return
            if key in transaction.removed.get(SERVICE_IPS, ()):
                nft("delete", key)
                left[0] -= 1
            elif key in transaction.added.get(SERVICE_IPS, {}):
                nft("add", key, " : drop")
                left[0] -= 1

    return meddle


def _served(harness: KernelHarness) -> set[int]:
    """Return the numbers of the Services that have their frontend and their endpoints."""
    contents = harness.held().contents
    arrays = {name.prefix[0] for name in contents.arrays}
    found = [key[0] for container, key in contents.entries if container == SERVICE_IPS]
    return {int(str(address).rpartition(".")[2]) for address in found if address in arrays}


@pytest.mark.parametrize("what", ["deleted", "added with another value"])
def test_who_meddles_once_is_answered_by_a_comparison(namespace: Namespace, what: str) -> None:
    """ENOENT and EEXIST of one moment are nobody's fault."""
    harness = KernelHarness(namespace)
    many(harness)
    if what == "deleted":
        harness.sync()
        harness.delete("Service", "web-7")
    harness.ports[Family.IPV4].meddle = _meddler(namespace, [_frontend(7)], times=1)
    report = harness.sync()[Family.IPV4]
    assert report.full
    assert report.left_out == {}
    assert held_by_fresh_start(harness) == harness.held().contents


@pytest.mark.parametrize("restarted", [True, False], ids=["at a start", "later"])
def test_who_is_refused_again_and_again_is_left_out_alone(namespace: Namespace, *, restarted: bool) -> None:
    harness = KernelHarness(namespace)
    harness.sync()
    if restarted:
        harness = KernelHarness(namespace)
    many(harness)
    harness.ports[Family.IPV4].meddle = _meddler(namespace, [_frontend(7), _frontend(23)])
    report = harness.sync()[Family.IPV4]
    assert {str(name) for name in report.left_out} == {"default/web-7:http", "default/web-23:http"}
    assert all("Could not process rule" in reason for reason in report.left_out.values())
    assert _served(harness) == set(range(1, COUNT + 1)) - {7, 23}


def test_what_is_left_out_is_tried_again_with_growing_pauses(namespace: Namespace) -> None:
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    many(harness)
    port = harness.ports[Family.IPV4]
    port.meddle = _meddler(namespace, [_frontend(7)])
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE):
        report = harness.sync()[Family.IPV4]
        assert report.again_within == pause
        clock.now += pause - 1
        port.sent.clear()
        assert harness.sync()[Family.IPV4].again_within == 1
        assert all(item.is_empty for item in port.sent)
        clock.now += 1
    port.meddle = lambda _: None
    report = harness.sync()[Family.IPV4]
    assert (report.left_out, report.again_within) == ({}, None)
    assert held_by_fresh_start(harness) == harness.held().contents


def test_the_others_go_on_meanwhile(namespace: Namespace) -> None:
    """Also those that share elements with the one that is left out, and without a listing at each sync."""
    harness = KernelHarness(namespace)
    many(harness)
    port = harness.ports[Family.IPV4]
    port.meddle = _meddler(namespace, [_frontend(7)])
    harness.sync()
    reads = port.reads
    harness.apply(service("late", 99), *slices("late", [7]))
    harness.delete("Service", "web-8")
    report = harness.sync()[Family.IPV4]
    assert not report.full
    assert reads == port.reads
    assert _served(harness) == set(range(1, COUNT + 1)) - {7, 8} | {99}


def test_one_that_changes_does_not_wait_longer_than_at_first(namespace: Namespace) -> None:
    """The change may have mended it; but who changes all the time is not tried all the time."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    many(harness)
    harness.ports[Family.IPV4].meddle = _meddler(namespace, [_frontend(7)])
    for pause in (PAUSE, 2 * PAUSE, 4 * PAUSE):
        assert harness.sync()[Family.IPV4].again_within == pause
        clock.now += pause
    harness.sync()
    harness.ports[Family.IPV4].meddle = lambda _: None
    clock.now += PAUSE - 1
    harness.apply(*slices("web-7", [50]))
    assert harness.sync()[Family.IPV4].again_within == 1
    clock.now += 1
    assert harness.sync()[Family.IPV4].left_out == {}
    assert held_by_fresh_start(harness) == harness.held().contents


def test_one_that_was_served_keeps_what_it_has(namespace: Namespace) -> None:
    """What cannot be changed stays as it was, over a comparison as well, until the Service is gone."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    many(harness)
    harness.sync()
    before = harness.held().contents
    harness.apply(*slices("web-7", [51, 52, 53]))
    harness.ports[Family.IPV4].meddle = _meddler(namespace, [_frontend(7)])
    assert set(map(str, harness.sync()[Family.IPV4].left_out)) == {"default/web-7:http"}
    arrays = {name for name in before.arrays if name.prefix[0] == "10.96.0.7"}
    assert arrays
    for _ in range(3):
        held = harness.held().contents
        assert {name: held.arrays[name] for name in arrays} == {name: before.arrays[name] for name in arrays}
        assert (CLUSTER_IPS, ("10.96.0.7",)) in held.members
        clock.now += 3601
        harness.sync()
    harness.ports[Family.IPV4].meddle = lambda _: None
    harness.delete("Service", "web-7")
    assert harness.sync()[Family.IPV4].left_out == {}
    assert held_by_fresh_start(harness) == harness.held().contents


def test_knfts_own_mistake_about_one_is_not_the_others(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    state = harness.proxiers[Family.IPV4].state
    plan = state.plan

    def failing(name: object) -> object:
        if "web-7:" in str(name):
            msg = "a mistake"
            raise ZeroDivisionError(msg)
        return plan(name)  # type: ignore[arg-type]

    monkeypatch.setattr(state, "plan", failing)
    many(harness)
    report = harness.sync()[Family.IPV4]
    (reason,) = report.left_out.values()
    assert reason == "knft fails on it, please report this: ZeroDivisionError('a mistake')"
    assert _served(harness) == set(range(1, COUNT + 1)) - {7}
    monkeypatch.undo()
    clock.now += PAUSE
    assert harness.sync()[Family.IPV4].left_out == {}
    assert held_by_fresh_start(harness) == harness.held().contents


def _of(harness: KernelHarness, address: str) -> tuple[object, object]:
    """Return the elements that lead to a frontend, and its endpoints."""
    contents = harness.held().contents
    entries = {place: entry for place, entry in contents.entries.items() if address in place[1]}
    return entries, {name: array for name, array in contents.arrays.items() if name.prefix[0] == address}


def test_one_that_changes_its_kind_keeps_all_that_it_had(namespace: Namespace) -> None:
    """Not the half of it that it still wants: a verdict without endpoints serves nobody."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    many(harness)
    harness.sync()
    before = _of(harness, "10.96.0.7")
    harness.apply(service("web-7", 7, sessionAffinity="ClientIP"))
    harness.ports[Family.IPV4].meddle = refusing("10.96.0.7")
    assert harness.sync()[Family.IPV4].left_out
    for _ in range(3):
        assert before == _of(harness, "10.96.0.7")
        clock.now += 3601
        harness.proxiers[Family.IPV4].doubt(Doubt())
        harness.sync()
    harness.ports[Family.IPV4].meddle = lambda _: None
    clock.now += 7200
    assert harness.sync()[Family.IPV4].left_out == {}
    assert before != _of(harness, "10.96.0.7")


def test_a_sticky_one_keeps_its_chains(namespace: Namespace) -> None:
    harness = KernelHarness(namespace, timer=Clock())
    many(harness)
    harness.apply(service("web-7", 7, sessionAffinity="ClientIP"))
    harness.sync()
    before = {name: count for name, count in harness.held().chains.items() if name.startswith("sticky-")}
    assert before

    def refuse(transaction: Transaction) -> None:
        if STICKY_ENDPOINTS in transaction.removed or STICKY_ENDPOINTS in transaction.added:
            msg = "poison"
            raise KernelError(msg)

    harness.ports[Family.IPV4].meddle = refuse
    harness.apply(*slices("web-7", [7]))
    assert harness.sync()[Family.IPV4].left_out
    assert before == {name: count for name, count in harness.held().chains.items() if name.startswith("sticky-")}


def test_when_the_table_is_made_anew_all_are_tried(namespace: Namespace) -> None:
    """What stood in their way has gone with the old one."""
    harness = KernelHarness(namespace, timer=Clock())
    many(harness)
    port = harness.ports[Family.IPV4]
    port.meddle = refusing("10.96.0.7")
    assert harness.sync()[Family.IPV4].left_out
    port.meddle = lambda _: None
    namespace.run(["nft", "delete", "table", "ip", "knft"])
    harness.proxiers[Family.IPV4].doubt(Doubt())
    assert harness.sync()[Family.IPV4].left_out == {}
    assert held_by_fresh_start(harness) == harness.held().contents


def test_one_that_the_library_dies_of_is_left_out(namespace: Namespace) -> None:
    harness = KernelHarness(namespace, timer=Clock())
    many(harness)
    harness.ports[Family.IPV4].meddle = refusing("10.96.0.7", LibraryDiedError)
    assert set(map(str, harness.sync()[Family.IPV4].left_out)) == {"default/web-7:http"}
    assert _served(harness) == set(range(1, COUNT + 1)) - {7}


def test_what_is_known_after_a_replacement_is_what_it_made(namespace: Namespace) -> None:
    """Somebody is left out, then even the foundation is refused: the table is replaced, and Services go on going."""
    clock = Clock()
    harness = KernelHarness(namespace, timer=clock)
    many(harness)
    harness.sync()
    port = harness.ports[Family.IPV4]
    port.meddle = refusing("10.96.0.7")
    harness.apply(*slices("web-7", [50]))
    assert harness.sync()[Family.IPV4].left_out
    port.meddle = lambda _: None
    clock.now += PAUSE + 1
    port.refuse = 3
    harness.proxiers[Family.IPV4].doubt(Doubt())
    assert harness.sync()[Family.IPV4].left_out == {}
    harness.delete("Service", "web-3")
    harness.sync()
    assert held_by_fresh_start(harness) == harness.held().contents


def test_ranges_that_overlap_what_was_there_before_replace_it(namespace: Namespace) -> None:
    """A Service's and the node's, beside one that is refused: libnftables would merge them, or refuse them."""
    harness = KernelHarness(namespace, timer=Clock())
    many(harness)

    def guarded(source: str) -> dict[str, Any]:
        spec = service("web-3", 3, type="LoadBalancer", loadBalancerSourceRanges=[source])
        return spec | {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.3"}]}}}

    harness.apply(guarded("192.0.2.0/28"))
    harness.sync()
    harness.apply(guarded("192.0.2.0/24"), *slices("web-7", [50]))
    cidrs = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.96.0.0/12", "fd00:10:96::/112"]}}
    harness.apply({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR"} | cidrs)
    harness.ports[Family.IPV4].meddle = refusing("10.96.0.7")
    assert set(map(str, harness.sync()[Family.IPV4].left_out)) == {"default/web-7:http"}
    members = harness.held().contents.members
    ranges = {(container, key[-1]) for container, key in members if container in (SOURCE_RANGES, SERVICE_CIDRS)}
    assert ranges == {(SOURCE_RANGES, "192.0.2.0/24"), (SERVICE_CIDRS, "10.96.0.0/12")}
