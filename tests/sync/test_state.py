"""Which Service ports are planned again after a change, and their new plans."""

import sys
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from knft.decide.frontends import FrontendClaims
from knft.families import Family
from knft.model.names import ServicePortName
from knft.model.node import NodeView
from knft.model.objects import Service
from knft.sync.state import MAX_TRIGGER_TIMES, PendingChanges, ServiceState
from tests.support.kube_objects import NODE, endpoint_slice, port_name, service, service_port

WEB, API = port_name(), port_name(service="api")
EXTERNAL = ("203.0.113.1",)


def _state(*services: Service) -> ServiceState:
    """Return a state with these Services and no pending changes."""
    state = ServiceState(Family.IPV4, NODE, datetime(2026, 1, 1, tzinfo=UTC))
    for item in services:
        state.handle_service(None, item)
    state.drain()
    return state


def _addresses(state: ServiceState, name: ServicePortName) -> list[str | None]:
    plan = state.plan(name)
    return [] if plan is None else [frontend.address for frontend in plan.frontends]


def test_changed_zone_or_node_address_plans_all_services_again() -> None:
    """Topology hints depend on the zone, and the sources allowed at a VIP on the node address."""
    state = _state(service("web"), service("api"))
    for node in (NodeView(Family.IPV4, NODE, "zone-a"), NodeView(Family.IPV4, NODE, "zone-a", "192.0.2.1")):
        state.handle_node(node)
        assert {WEB, API} == state.drain().service_ports


def test_other_node_changes_plan_no_service_again() -> None:
    state = _state(service("web"))
    state.handle_node(NodeView(Family.IPV4, NODE, nodeport_ips=frozenset({"192.0.2.1"}), pod_cidr="10.244.0.0/16"))
    changes = state.drain()
    assert frozenset() == changes.service_ports
    assert state.node == changes.node


def test_service_that_loses_a_frontend_is_planned_again() -> None:
    """The older Service arrives later, as after a restart."""
    state = _state(service("web", external_ips=EXTERNAL, created="2026-01-02T00:00:00Z"))
    state.handle_service(
        None, service("api", cluster_ip="10.96.0.2", external_ips=EXTERNAL, created="2026-01-01T00:00:00Z")
    )
    assert {WEB, API} == state.drain().service_ports
    assert _addresses(state, WEB) == ["10.96.0.1"]
    assert ["10.96.0.2", *EXTERNAL] == _addresses(state, API)


def test_service_that_gains_a_frontend_is_planned_again() -> None:
    owner = service("api", cluster_ip="10.96.0.2", external_ips=EXTERNAL)
    state = _state(owner, service("web", external_ips=EXTERNAL))
    assert _addresses(state, WEB) == ["10.96.0.1"]
    state.handle_service(owner, None)
    assert {WEB, API} == state.drain().service_ports
    assert ["10.96.0.1", *EXTERNAL] == _addresses(state, WEB)


def test_slice_moved_to_another_service_leaves_the_first() -> None:
    """Its label changes, without a deletion of the slice."""
    state = _state(service("web"), service("api"))
    before, after = (endpoint_slice("shared", "10.244.0.1", service=name) for name in ("web", "api"))
    state.handle_slice(None, before)
    state.drain()
    assert state.handle_slice(before, after)
    assert {WEB, API} == state.drain().service_ports
    plans = {name: state.plan(name) for name in (WEB, API)}
    endpoint_counts = {name: len(plan.endpoints.cluster) for name, plan in plans.items() if plan is not None}
    assert endpoint_counts == {WEB: 0, API: 1}


def test_slice_that_changes_family_leaves_the_first() -> None:
    """The API server rejects this change, but a manifest file may contain it."""
    state = _state(service("web"))
    before, after = endpoint_slice("a", "10.244.0.1"), endpoint_slice("a", "fd00::1", family="IPv6")
    state.handle_slice(None, before)
    state.drain()
    assert state.handle_slice(before, after)
    assert {WEB} == state.drain().service_ports


def test_slice_of_the_other_family_needs_no_sync() -> None:
    other = endpoint_slice("a", "fd00::1", family="IPv6")
    assert not _state(service("web")).handle_slice(None, other)


def test_changes_of_a_failed_drain_are_returned_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trackers' changes are not lost; a Service whose claims were lost would never be served."""
    state = _state(service("web"))
    claim = FrontendClaims.claim

    def failing(*_: object) -> None:
        monkeypatch.undo()
        msg = "error for the test"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(FrontendClaims, "claim", failing)
    state.handle_service(None, service("api", cluster_ip="10.96.0.2"))
    with pytest.raises(ZeroDivisionError):
        state.drain()
    assert claim is FrontendClaims.claim
    assert {API} == state.drain().service_ports
    assert _addresses(state, API) == ["10.96.0.2"]
    assert frozenset() == state.drain().service_ports


def test_many_services_do_not_make_later_drains_slower() -> None:
    """An emptied set would keep its size, and each drain iterates over it."""
    state = _state(*(service(f"web-{n}", cluster_ip=f"10.96.{n // 250}.{n % 250}") for n in range(1000)))
    assert sys.getsizeof(state._pending_claims) == sys.getsizeof(set())


def test_changes_of_two_failed_drains_are_returned_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    state = _state()

    def failing(*_: object) -> None:
        msg = "error for the test"
        raise ZeroDivisionError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(FrontendClaims, "claim", failing)
        for number, name in enumerate(("web", "api"), 1):
            state.handle_service(None, service(name, cluster_ip=f"10.96.0.{number}"))
            with pytest.raises(ZeroDivisionError):
                state.drain()
    assert {WEB, API} == state.drain().service_ports


def test_frontends_that_several_services_release_plan_all_losers_again() -> None:
    def claiming(name: str, number: int, day: int) -> Service:
        created = f"2026-01-0{day}T00:00:00Z"
        return service(name, cluster_ip=f"10.96.{day}.{number}", external_ips=(f"203.0.113.{number}",), created=created)

    owners = [claiming(f"owner-{number}", number, day=1) for number in (1, 2)]
    state = _state(*owners, claiming("web", 1, day=2), claiming("api", 2, day=2))
    assert _addresses(state, WEB) == ["10.96.2.1"]
    for owner in owners:
        state.handle_service(owner, None)
    assert {WEB, API} <= state.drain().service_ports
    assert _addresses(state, WEB) == ["10.96.2.1", "203.0.113.1"]


def test_first_trigger_times_of_failed_syncs_are_kept() -> None:
    """Memory stays bounded if a Service changes all day while the kernel refuses every sync."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=number) for number in range(1000)]
    pending = [
        PendingChanges(frozenset(), None, {WEB.service: (time,)}, conntrack_cleanup_required=False) for time in times
    ]
    merged = pending[0]
    for changes in pending[1:]:
        merged = merged.merged_with(changes)
    assert tuple(times[:MAX_TRIGGER_TIMES]) == merged.trigger_times[WEB.service]


def test_changes_of_two_drains_are_merged() -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    first, second = NodeView(Family.IPV4, NODE, "zone-a"), NodeView(Family.IPV4, NODE, "zone-b")
    before = PendingChanges(frozenset({WEB}), first, {WEB.service: (time,)}, conntrack_cleanup_required=True)
    after = PendingChanges(frozenset({API}), None, {API.service: (time,)}, conntrack_cleanup_required=False)
    merged = PendingChanges(
        frozenset({WEB, API}), first, {WEB.service: (time,), API.service: (time,)}, conntrack_cleanup_required=True
    )
    assert before.merged_with(after) == after.merged_with(before) == merged
    assert before.merged_with(structs.replace(after, node=second)).node == second
    assert not after.merged_with(after).conntrack_cleanup_required


def test_changes_are_split_into_those_in_force_and_waiting_ones() -> None:
    """A Service with a waiting port has not reached the kernel; the node's change always has."""
    time = datetime(2026, 1, 1, tzinfo=UTC)
    node, other_port = NodeView(Family.IPV4, NODE, "zone-a"), WEB._replace(port="other")
    changes = PendingChanges(
        frozenset({WEB, other_port, API}),
        node,
        {WEB.service: (time,), API.service: (time,)},
        conntrack_cleanup_required=True,
    )
    assert changes.split(frozenset()) == (changes, None)
    assert changes.split(frozenset({WEB})) == (
        PendingChanges(frozenset({other_port, API}), node, {API.service: (time,)}, conntrack_cleanup_required=True),
        PendingChanges(frozenset({WEB}), None, {WEB.service: (time,)}, conntrack_cleanup_required=True),
    )


def test_node_ports_are_known_before_and_after_a_drain() -> None:
    with_node_port = service("web", ports=(service_port(node_port=30080),))
    state = _state(service("web"))
    assert not state.has_node_ports()
    state.handle_service(service("web"), with_node_port)
    assert state.has_node_ports()
    state.drain()
    assert state.has_node_ports()
    state.handle_service(with_node_port, service("web"))
    state.drain()
    assert not state.has_node_ports()
