"""The judge of traffic that never rests sees each fault for which there is one, and no other."""

import pytest

from tests.packets.churn import SERVICES, Backend
from tests.packets.frontends import Frontend
from tests.packets.judge import Judge
from tests.packets.timeline import Timeline
from tests.support.lab.calls import NONE, Call

KINDS = {kind.name: kind for kind in SERVICES}
HERE, THERE, LATER = Backend("local-1", 8080), Backend("remote-1", 8081), Backend("remote-2", 8082)


def _judge() -> Judge:
    """Return a judge of Services with HERE and THERE from 0 s, HERE alone from 10 s to 11 s, then HERE and LATER."""
    timelines = {name: Timeline() for name in KINDS}
    for timeline in timelines.values():
        timeline.note(0.0, (HERE, THERE), 1.0)
        timeline.note(10.0, (HERE,), 11.0)
        timeline.note(20.0, (HERE, LATER), 21.0)
    return Judge(timelines)


def _call(begun: float, backend: Backend, *, again: int = 0) -> Call:
    return Call(0, NONE, begun, begun + 0.1, *backend, again, NONE)


@pytest.mark.parametrize(
    ("kind", "place", "call", "expected"),
    [
        pytest.param("open", "cluster", _call(5, THERE), "", id="an endpoint"),
        pytest.param("open", "cluster", _call(10.5, THERE), "", id="one that is just going"),
        pytest.param("open", "cluster", _call(11.5, THERE), "that is no endpoint", id="one that is gone"),
        pytest.param("open", "cluster", _call(19.5, LATER), "that is no endpoint", id="one that is still to come"),
        pytest.param("open", "cluster", _call(20.5, LATER), "", id="one that is just coming"),
        pytest.param("open", "cluster", _call(5, Backend("local-1", 8081)), "that is no endpoint", id="mixed up"),
        pytest.param("open", "cluster", _call(5, HERE, again=1), "a packet was lost", id="at the second attempt"),
        pytest.param("near", "node", _call(5, THERE), "the policy is Local", id="a remote one"),
        pytest.param("near", "node", _call(5, HERE), "", id="a local one"),
        pytest.param("near", "cluster", _call(5, THERE), "", id="a remote one, where that is allowed"),
        pytest.param(
            "open", "cluster", Call(0, NONE, 5, 6, NONE, 0, 0, "TimeoutError"), "nobody answered", id="nobody"
        ),
    ],
)
def test_a_call_is_judged_by_what_was_in_force(kind: str, place: str, call: Call, expected: str) -> None:
    judge = _judge()
    judge.hear(Frontend("outside", KINDS[kind], place, 4, "tcp"), call)
    assert [fault.partition(": ")[0] for fault in judge.faults] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([_call(5, HERE), _call(25, HERE)], {"stayed": 2}, id="it stays"),
        pytest.param([_call(5, HERE), _call(25, LATER)], {"stayed": 2, "faults": 1}, id="it is led away"),
        pytest.param([_call(5, THERE), _call(25, LATER)], {"stayed": 1, "moved": 1}, id="it has to move"),
    ],
)
def test_a_sticky_client_stays_as_long_as_its_endpoint_lives(calls: list[Call], expected: dict[str, int]) -> None:
    judge = _judge()
    for place, call in zip(("cluster", "node"), calls, strict=True):
        judge.hear(Frontend("outside", KINDS["kept"], place, 4, "tcp"), call)
    assert {what: count for what, count in judge.seen.items() if count and what != "across a commit"} == expected
