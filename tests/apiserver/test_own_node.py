"""The own Node: what knft waits for at the start, and what ends it later (J.3)."""

import logging
import threading
from typing import Any

import msgspec
import pytest

from knft.apiserver.node import OwnNode, host_ips, is_eligible
from knft.errors import ApiServerError
from knft.model.objects import Node, ObjectChange
from tests.support.fake_api.cluster import Object, node


def made(document: Object) -> Node:
    return msgspec.convert(document, Node)


def a_node(*addresses: str, **spec: Any) -> Node:
    return made(node("node-1", *(addresses or ("192.0.2.11",)), **spec))


class Own:
    """An OwnNode and the sentences with which it ends the process."""

    def __init__(self, *, needs_pod_cidrs: bool = False) -> None:
        self.ends: list[str] = []
        self.own = OwnNode("node-1", needs_pod_cidrs=needs_pod_cidrs, request_restart=self.ends.append)

    def begun(self, first: Node) -> "Own":
        self.own.filter_changes([ObjectChange(None, first)])
        assert self.own.wait_ready(threading.Event()) is first
        return self

    def becomes(self, after: Node | None) -> list[str]:
        self.own.filter_changes([ObjectChange(self.own.current(), after)])
        return self.ends


def test_rules_do_not_follow_what_the_process_ends_by() -> None:
    """Nor the Node that is made again before it has ended; other objects they do follow."""
    first, other = a_node(), made(node("node-2", "192.0.2.12"))
    test = Own().begun(first)
    changes = [ObjectChange(first, None), ObjectChange(None, other), ObjectChange(None, first)]
    assert test.own.filter_changes(changes) == (ObjectChange(None, other),)
    assert len(test.ends) == 1


def test_rules_keep_the_addresses_that_a_node_has_lost() -> None:
    """Its labels they do follow."""
    first = a_node()
    test = Own().begun(first)
    lost = msgspec.structs.replace(made(node("node-1")), spec=first.spec)
    (kept,) = test.own.filter_changes([ObjectChange(first, lost)])
    assert isinstance(kept.current, Node)
    assert host_ips(kept.current) == host_ips(first)
    assert test.ends == []


CIDRS: dict[str, Any] = {"podCIDRs": ["10.244.1.0/24"]}


@pytest.mark.parametrize(
    ("needs_pod_cidrs", "found", "text"),
    [
        (False, None, "Node 'node-1' not found; check --hostname-override"),
        (False, made(node("node-1")), "Node 'node-1' has no InternalIP and no ExternalIP"),
        (True, a_node(), "Node 'node-1' has no podCIDRs, which --detect-local-mode=NodeCIDR needs"),
    ],
)
def test_the_last_thing_that_lacks_is_the_error(needs_pod_cidrs: bool, found: Node | None, text: str) -> None:  # noqa: FBT001 - a row
    test = Own(needs_pod_cidrs=needs_pod_cidrs)
    if found is not None:
        test.becomes(found)
    with pytest.raises(ApiServerError) as raised:
        test.own.wait_ready(threading.Event(), timeout=0.03, poll_interval=0.01)
    assert str(raised.value) == f"{text}; gave up after 0.03 s"


def test_a_server_that_does_not_answer_is_waited_for_without_limit(caplog: pytest.LogCaptureFixture) -> None:
    """J.3: five minutes are for the Node, of which nobody knows while the server is away."""
    caplog.set_level(logging.INFO, "knft")
    test, looks = Own(), 0

    def trouble() -> str:
        nonlocal looks
        looks += 1
        return "" if looks <= 100 or looks > 10_000 else "connection refused"

    class Waited(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            return timeout is None

    test.own._changed = Waited()
    with pytest.raises(ApiServerError, match=r"^Node 'node-1' not found.*; gave up after 300 s"):
        test.own.wait_ready(threading.Event(), trouble)
    # A hundred seconds before the server was away, and two hundred after.
    assert looks == 10_201
    assert caplog.messages[1:2] == ["waiting: connection refused"]


def test_it_is_waited_for_five_minutes_a_look_each_second() -> None:
    test, looks = Own(), list[float]()

    class Waited(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            looks.append(timeout or 0)
            return False

    test.own._changed = Waited()
    with pytest.raises(ApiServerError, match="gave up after 300 s"):
        test.own.wait_ready(threading.Event())
    assert looks == [1.0] * 300


def test_it_goes_on_as_soon_as_all_is_there() -> None:
    test, found = Own(needs_pod_cidrs=True), list[Node | None]()
    thread = threading.Thread(
        target=lambda: found.append(test.own.wait_ready(threading.Event(), poll_interval=20, timeout=100))
    )
    thread.start()
    test.becomes(made(node("node-1")))
    test.becomes(a_node())
    last = a_node(**CIDRS)
    test.becomes(last)
    thread.join(15)
    assert found == [last]
    assert not test.ends


def test_it_waits_no_longer_than_knft_runs() -> None:
    stop = threading.Event()
    stop.set()
    assert Own().own.wait_ready(stop) is None


def test_before_the_start_anything_may_change() -> None:
    test = Own()
    for found in (a_node(), None, a_node("192.0.2.12")):
        test.becomes(found)
    assert not test.ends


END = "; exiting, to be restarted; the rules stay"


def test_a_node_that_is_deleted_ends_knft() -> None:
    test = Own().begun(a_node())
    assert test.becomes(None) == [f"Node 'node-1' was deleted{END}"]
    # Once is enough.
    assert len(test.becomes(a_node("192.0.2.12"))) == 1


def test_other_addresses_end_knft() -> None:
    test = Own().begun(a_node("192.0.2.11", "2001:db8::11"))
    text = "addresses of Node 'node-1' changed from 192.0.2.11, 2001:db8::11 to 192.0.2.11, 2001:db8::12"
    assert test.becomes(a_node("192.0.2.11", "2001:db8::12")) == [text + END]


def test_addresses_that_do_not_count_may_change() -> None:
    assert not Own().begun(a_node("192.0.2.11")).becomes(a_node("192.0.2.11", "192.0.2.12"))


def test_no_addresses_at_all_are_better_than_an_end() -> None:
    test = Own().begun(a_node())
    assert not test.becomes(made(node("node-1")))
    assert not test.becomes(a_node())
    assert test.becomes(a_node("192.0.2.12"))


def test_other_pod_cidrs_end_knft_where_they_matter() -> None:
    other = {"podCIDRs": ["10.244.9.0/24"]}
    text = f"podCIDRs of Node 'node-1' changed from 10.244.1.0/24 to 10.244.9.0/24{END}"
    assert Own(needs_pod_cidrs=True).begun(a_node(**CIDRS)).becomes(a_node(**other)) == [text]
    assert Own(needs_pod_cidrs=True).begun(a_node(**CIDRS)).becomes(a_node())
    assert not Own().begun(a_node(**CIDRS)).becomes(a_node(**other))


def test_labels_and_taints_and_other_nodes_end_nothing() -> None:
    test = Own().begun(a_node())
    labelled = node("node-1", "192.0.2.11", taints=[{"key": "any", "effect": "NoSchedule"}])
    labelled["metadata"]["labels"] = {"topology.kubernetes.io/zone": "b"}
    test.own.filter_changes([ObjectChange(made(node("node-2", "192.0.2.12")), None)])
    assert not test.becomes(made(labelled))
    assert test.own.current() == made(labelled)


def test_addresses_are_one_of_each_family_internal_ones_first() -> None:
    found = a_node("192.0.2.11", "192.0.2.12")
    addresses = [{"type": "ExternalIP", "address": "198.51.100.1"}, {"type": "ExternalIP", "address": "2001:db8::1"}]
    document = msgspec.to_builtins(found)
    document["status"]["addresses"] = [
        *addresses,
        *document["status"]["addresses"],
        {"type": "Hostname", "address": "n"},
    ]
    assert host_ips(made(document)) == ("192.0.2.11", "2001:db8::1")


def test_who_is_eligible() -> None:
    leaving = node("node-1", "192.0.2.11")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    tainted = a_node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}])
    assert [is_eligible(item) for item in (None, a_node(), made(leaving), tainted)] == [False, True, False, False]
    test = Own().begun(a_node())
    eligible = [test.own.eligible]
    assert not test.becomes(tainted)
    assert [*eligible, test.own.eligible] == [True, False]
