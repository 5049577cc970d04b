"""Tests of ProxyHealth with a fake clock: docs/behaviour/upstream-tests.md#health, and exact bodies."""

from collections.abc import Callable

import msgspec
import pytest

from knft.apiserver.node import is_eligible
from knft.families import Family
from knft.model.objects import Node, NodeSpec, ObjectMeta, Taint
from knft.serve.proxy_health import ProxyHealth
from knft.serve.timestamp import Timestamp
from knft.sync.observer import SyncObserver
from tests.support.fake_timestamps import FakeTimestamps

V4, V6 = Family.IPV4, Family.IPV6
TIMEOUT = 10.0


class _Health:
    """A ProxyHealth whose syncs the test reports."""

    def __init__(self) -> None:
        self.clock = FakeTimestamps()
        self.health = ProxyHealth(TIMEOUT / 2, self.clock)
        self.eligible = True

    def updated(self, *families: Family) -> None:
        for family in families:
            self.health._record_update(family)

    def queued(self, *families: Family) -> None:
        for family in families:
            self.health.sync_queued(family)

    def expect(self, *, livez: int, healthz: int) -> None:
        alive, ready = self.health.livez(), self.health.healthz(node_eligible=self.eligible)
        assert (alive.status, ready.status) == (livez, healthz)
        for response, has_node in ((alive, False), (ready, True)):
            body = msgspec.json.decode(response.body)
            has_late_change = has_node and self.eligible and healthz != 200
            assert body["healthy"] is (livez == 200 and not has_late_change)
            assert body.get("nodeEligible") == (self.eligible if has_node else None)


def _tainted(key: str) -> Node:
    return Node(ObjectMeta("node-1"), NodeSpec(taints=(Taint(key),)))


def test_late_families_make_the_proxy_unhealthy_until_updated() -> None:
    """The proxy is healthy before the first update; late families make it unhealthy until both are updated."""
    health = _Health()
    health.expect(livez=200, healthz=200)
    health.updated(V4, V6)
    health.expect(livez=200, healthz=200)
    health.queued(V4, V6)
    health.clock.pass_time(25)
    health.expect(livez=503, healthz=503)
    health.updated(V4)
    health.expect(livez=503, healthz=503)
    health.updated(V6)
    health.expect(livez=200, healthz=200)


def test_liveness_tolerates_a_long_sync_that_makes_progress() -> None:
    """A restart would begin the same reading of a large table again, for ever. Load balancers see the late change."""
    health = _Health()
    health.updated(V4, V6)
    health.queued(V4, V6)
    health.health.sync_started(V4)
    for _ in range(5):
        health.clock.pass_time(TIMEOUT - 1)
        health.health.sync_progressed()
    health.clock.pass_time(TIMEOUT - 1)
    health.expect(livez=200, healthz=503)
    health.updated(V4)
    health.health.sync_started(V6)
    health.expect(livez=200, healthz=503)
    health.updated(V6)
    health.expect(livez=200, healthz=200)


def test_sync_without_progress_fails_the_liveness() -> None:
    health = _Health()
    health.updated(V4, V6)
    health.queued(V4, V6)
    health.health.sync_started(V4)
    health.clock.pass_time(TIMEOUT)
    health.expect(livez=503, healthz=503)


def test_progress_of_syncs_that_fail_again_and_again_does_not_count() -> None:
    health = _Health()
    health.updated(V4, V6)
    health.health.sync_started(V4)
    health.health.sync_failed(V4, 1.0, "refused")
    health.clock.pass_time(TIMEOUT)
    health.health.sync_started(V4)
    health.health.sync_progressed()
    health.expect(livez=503, healthz=503)


@pytest.mark.parametrize("family", list(Family))
def test_one_late_family_makes_the_proxy_unhealthy(family: Family) -> None:
    health = _Health()
    health.updated(V4, V6)
    health.queued(family)
    health.clock.pass_time(25)
    health.expect(livez=503, healthz=503)
    states = {found: state.is_healthy for found, state in health.health.families().items()}
    assert states == {each: each is not family for each in Family}


def test_timeout_counts_from_the_oldest_pending_change() -> None:
    health = _Health()
    health.updated(V4)
    health.queued(V4)
    health.clock.pass_time(TIMEOUT - 1)
    health.queued(V4)
    health.clock.pass_time(0.5)
    health.expect(livez=200, healthz=200)
    health.clock.pass_time(0.5)
    health.expect(livez=503, healthz=503)


def test_idle_proxy_is_healthy() -> None:
    health = _Health()
    health.updated(V4, V6)
    health.clock.pass_time(1e6)
    health.expect(livez=200, healthz=200)


def test_family_before_its_first_loop_is_not_reported() -> None:
    health = _Health()
    health.queued(V4, V6)
    health.clock.pass_time(25)
    health.expect(livez=200, healthz=200)
    assert b"status" not in health.health.livez().body
    health.updated(V6)
    assert health.health.families().keys() == {V6}


def test_failed_sync_keeps_changes_pending() -> None:
    health = _Health()
    health.updated(V4)
    health.queued(V4)
    health.clock.pass_time(TIMEOUT - 1)
    health.health.sync_failed(V4, 0.1, "refused")
    health.clock.pass_time(1)
    health.expect(livez=503, healthz=503)


def test_first_sync_that_never_succeeds_is_late() -> None:
    """Nothing was queued since the loop started: the failed sync is pending."""
    health = _Health()
    health.health.loop_started(V4)
    health.health.sync_failed(V4, 0.1, "refused")
    health.clock.pass_time(TIMEOUT)
    health.expect(livez=503, healthz=503)


def test_family_whose_table_is_left_to_another_process_is_healthy() -> None:
    """A restart would not help, and the node is served."""
    health = _Health()
    health.updated(V4, V6)
    health.health.sync_started(V4)
    health.health.sync_failed(V4, 0.1, "refused")
    health.clock.pass_time(TIMEOUT)
    health.expect(livez=503, healthz=503)
    health.health.table_left(V4)
    health.expect(livez=200, healthz=200)
    health.queued(V4)
    health.clock.pass_time(TIMEOUT)
    health.expect(livez=503, healthz=503)


def _readiness(health: _Health) -> tuple[int, str]:
    response = health.health.readyz()
    return response.status, response.body.decode()


def test_proxy_is_ready_after_the_first_sync_of_each_family() -> None:
    """Not before it, although ``/healthz`` succeeds, as kube-proxy's does."""
    health = _Health()
    assert _readiness(health) == (503, "waiting for the Services and endpoints of the cluster")
    for family in (V4, V6):
        health.health.loop_started(family)
    assert _readiness(health) == (503, "waiting for the first sync of IPv4 and IPv6")
    health.health.sync_failed(V4, 0.1, "refused")
    health.health._record_update(V4, is_synced=True)
    assert _readiness(health) == (503, "waiting for the first sync of IPv6")
    health.expect(livez=200, healthz=200)
    health.health.table_left(V6)
    assert _readiness(health) == (200, "ok")
    health.queued(V6)
    assert _readiness(health) == (200, "ok")
    health.clock.pass_time(25)
    assert _readiness(health) == (503, "a change of IPv6 is not in force")
    health.updated(V6)
    assert _readiness(health) == (200, "ok")


def test_wall_clock_jump_makes_nothing_late() -> None:
    health = _Health()
    health.updated(V4)
    health.queued(V4)
    health.clock.set_wall(86400)
    health.expect(livez=200, healthz=200)
    assert b'"currentTime":"2026-05-29T20:26:40Z"' in health.health.livez().body


@pytest.mark.parametrize(
    ("node", "is_node_eligible"),
    [
        pytest.param(Node(ObjectMeta("node-1")), True, id="normal"),
        pytest.param(_tainted("ToBeDeletedByClusterAutoscaler"), False, id="tainted by the cluster autoscaler"),
        pytest.param(_tainted("node.kubernetes.io/unschedulable"), True, id="another taint"),
        pytest.param(Node(ObjectMeta("node-1", deletion_timestamp="2026-01-01T00:00:00Z")), False, id="being deleted"),
        pytest.param(None, False, id="deleted"),
    ],
)
def test_node_affects_healthz_but_not_livez(node: Node | None, *, is_node_eligible: bool) -> None:
    health = _Health()
    health.updated(V4, V6)
    health.eligible = is_eligible(node)
    assert health.eligible is is_node_eligible
    health.expect(livez=200, healthz=200 if is_node_eligible else 503)
    health.eligible = True
    health.expect(livez=200, healthz=200)


LATE_BODY = (
    b'{"lastUpdated":"2026-05-28T20:26:41.5Z","currentTime":"2026-05-28T20:27:06.5Z",%s"healthy":false,'
    b'"status":{"IPv4":{"lastUpdated":"2026-05-28T20:26:40Z","healthy":false},'
    b'"IPv6":{"lastUpdated":"2026-05-28T20:26:41.5Z","healthy":true}}}'
)


def _late() -> _Health:
    health = _Health()
    health.updated(V4)
    health.queued(V4)
    health.clock.pass_time(1.5)
    health.updated(V6)
    health.clock.pass_time(25)
    return health


def test_body_of_an_unhealthy_proxy() -> None:
    """``lastUpdated`` is that of the newest family; the fields are in kube-proxy's order."""
    health = _late()
    assert health.health.livez().body == LATE_BODY % b""
    assert health.health.healthz(node_eligible=True).body == LATE_BODY % b'"nodeEligible":true,'
    assert health.health.healthz(node_eligible=False).body == LATE_BODY % b'"nodeEligible":false,'


def test_body_of_a_healthy_proxy_reports_now_as_last_update() -> None:
    health = _late()
    health.updated(V4)
    health.clock.pass_time(1)
    assert health.health.healthz(node_eligible=True).body == (
        b'{"lastUpdated":"2026-05-28T20:27:07.5Z","currentTime":"2026-05-28T20:27:07.5Z","nodeEligible":true,'
        b'"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-05-28T20:27:06.5Z","healthy":true},'
        b'"IPv6":{"lastUpdated":"2026-05-28T20:26:41.5Z","healthy":true}}}'
    )


def test_body_of_a_healthy_proxy_on_an_ineligible_node() -> None:
    """The status is 503; before the loop starts, the last update is Go's zero time."""
    health = _Health()
    response = health.health.healthz(node_eligible=False)
    assert response.status == 503
    assert response.body == (
        b'{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-05-28T20:26:40Z","nodeEligible":false,'
        b'"healthy":true}'
    )


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (1_780_000_000_123_456_789, "2026-05-28T20:26:40.123456789Z"),
        (1_780_000_000_120_000_000, "2026-05-28T20:26:40.12Z"),
    ],
)
def test_timestamp_format(nanoseconds: int, text: str) -> None:
    assert str(Timestamp(nanoseconds, 0)) == text


def test_proxy_health_is_an_observer() -> None:
    check: Callable[[SyncObserver], None] = lambda _: None  # noqa: E731 - checked by mypy
    check(ProxyHealth(30, FakeTimestamps()))
