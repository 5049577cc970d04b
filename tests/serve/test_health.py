"""ProxyHealth by a clock of the test's own: the sequences of behaviour.md K.3, and the bodies byte for byte."""

from collections.abc import Callable

import msgspec
import pytest

from knft.model.names import Family
from knft.serve.health import ProxyHealth, is_eligible
from knft.serve.moment import Moment
from knft.sync.observer import Observer
from tests.serve.held_moment import HeldMoment

V4, V6 = Family.IPV4, Family.IPV6
TIMEOUT = 10.0


class _Health:
    """A ProxyHealth whose syncs are said by the test."""

    def __init__(self) -> None:
        self.clock = HeldMoment()
        self.health = ProxyHealth(TIMEOUT / 2, self.clock)
        self.eligible = True

    def updated(self, *families: Family) -> None:
        for family in families:
            self.health._update(family)

    def queued(self, *families: Family) -> None:
        for family in families:
            self.health.queued(family)

    def expect(self, *, livez: int, healthz: int) -> None:
        alive, ready = self.health.livez(), self.health.healthz(node_eligible=self.eligible)
        assert (alive.status, ready.status) == (livez, healthz)
        for response, has_node in ((alive, False), (ready, True)):
            body = msgspec.json.decode(response.body)
            assert body["healthy"] is (livez == 200)
            assert body.get("nodeEligible") == (self.eligible if has_node else None)


def test_the_sequence_of_upstreams_test() -> None:
    """Before any update healthy; late families make it unhealthy, until both are updated."""
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


@pytest.mark.parametrize("family", list(Family))
def test_one_family_that_is_late_is_enough(family: Family) -> None:
    health = _Health()
    health.updated(V4, V6)
    health.queued(family)
    health.clock.pass_time(25)
    health.expect(livez=503, healthz=503)
    states = {found: state.healthy for found, state in health.health.families().items()}
    assert states == {each: each is not family for each in Family}


def test_what_waits_is_late_from_the_timeout_on_counted_from_the_oldest() -> None:
    health = _Health()
    health.updated(V4)
    health.queued(V4)
    health.clock.pass_time(TIMEOUT - 1)
    health.queued(V4)
    health.clock.pass_time(0.5)
    health.expect(livez=200, healthz=200)
    health.clock.pass_time(0.5)
    health.expect(livez=503, healthz=503)


def test_a_proxy_that_nobody_asks_for_anything_is_healthy() -> None:
    health = _Health()
    health.updated(V4, V6)
    health.clock.pass_time(1e6)
    health.expect(livez=200, healthz=200)


def test_a_family_that_has_not_begun_is_not_reported() -> None:
    health = _Health()
    health.queued(V4, V6)
    health.clock.pass_time(25)
    health.expect(livez=200, healthz=200)
    assert b"status" not in health.health.livez().body
    health.updated(V6)
    assert health.health.families().keys() == {V6}


def test_a_sync_that_fails_leaves_late_what_is_late() -> None:
    health = _Health()
    health.updated(V4)
    health.queued(V4)
    health.clock.pass_time(TIMEOUT - 1)
    health.health.failed(V4, 0.1)
    health.clock.pass_time(1)
    health.expect(livez=503, healthz=503)


def test_a_first_sync_that_never_succeeds_is_late_too() -> None:
    """Nothing was queued after the loop began: what failed is what waits."""
    health = _Health()
    health.health.looping(V4)
    health.health.failed(V4, 0.1)
    health.clock.pass_time(TIMEOUT)
    health.expect(livez=503, healthz=503)


def test_who_sets_the_machines_clock_makes_nothing_late() -> None:
    health = _Health()
    health.updated(V4)
    health.queued(V4)
    health.clock.set_wall(86400)
    health.expect(livez=200, healthz=200)
    assert b'"currentTime":"2026-05-29T20:26:40Z"' in health.health.livez().body


@pytest.mark.parametrize(
    ("node", "eligible"),
    [
        pytest.param({}, True, id="as it should be"),
        pytest.param({"taint_keys": ["ToBeDeletedByClusterAutoscaler"]}, False, id="about to be removed"),
        pytest.param({"taint_keys": ["node.kubernetes.io/unschedulable"]}, True, id="another taint"),
        pytest.param({"deletion_timestamp": "2026-01-01T00:00:00Z"}, False, id="being deleted"),
        pytest.param({"exists": False}, False, id="gone"),
    ],
)
def test_the_node_changes_healthz_and_never_livez(node: dict[str, object], *, eligible: bool) -> None:
    health = _Health()
    health.updated(V4, V6)
    known = {"exists": True, "deletion_timestamp": None, "taint_keys": ()}
    health.eligible = is_eligible(**(known | node))  # type: ignore[arg-type]
    assert health.eligible is eligible
    health.expect(livez=200, healthz=200 if eligible else 503)
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


def test_the_body_of_an_unhealthy_proxy() -> None:
    """``lastUpdated`` is the newest of the families'; the order of the fields is kube-proxy's."""
    health = _late()
    assert health.health.livez().body == LATE_BODY % b""
    assert health.health.healthz(node_eligible=True).body == LATE_BODY % b'"nodeEligible":true,'
    assert health.health.healthz(node_eligible=False).body == LATE_BODY % b'"nodeEligible":false,'


def test_the_body_of_a_healthy_proxy_says_that_it_was_updated_now() -> None:
    health = _late()
    health.updated(V4)
    health.clock.pass_time(1)
    assert health.health.healthz(node_eligible=True).body == (
        b'{"lastUpdated":"2026-05-28T20:27:07.5Z","currentTime":"2026-05-28T20:27:07.5Z","nodeEligible":true,'
        b'"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-05-28T20:27:06.5Z","healthy":true},'
        b'"IPv6":{"lastUpdated":"2026-05-28T20:26:41.5Z","healthy":true}}}'
    )


def test_the_body_of_a_healthy_proxy_on_a_node_that_goes_away() -> None:
    """503 though the proxy is healthy; before the loop begins the last update is Go's zero time."""
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
def test_times_are_written_to_the_nanosecond(nanoseconds: int, text: str) -> None:
    assert str(Moment(nanoseconds, 0)) == text


def test_it_is_an_observer() -> None:
    check: Callable[[Observer], None] = lambda _: None  # noqa: E731 - mypy is who checks
    check(ProxyHealth(30, HeldMoment()))
