"""OwnNode: what the start waits for, and what requests a restart (docs/behaviour/node.md#node)."""

import logging
import threading
from typing import Any

import msgspec
import pytest

from knft.apiserver.node import OwnNode, host_ips, is_eligible
from knft.errors import ApiServerError
from knft.model.objects import Node, ObjectChange
from tests.support.fake_api.cluster import Object, node


def decoded(document: Object) -> Node:
    return msgspec.convert(document, Node)


def a_node(*addresses: str, **spec: Any) -> Node:
    return decoded(node("node-1", *(addresses or ("192.0.2.11",)), **spec))


class NodeTest:
    """An OwnNode and the reasons of the restarts that it requests."""

    def __init__(self, *, needs_pod_cidrs: bool = False) -> None:
        self.restarts: list[str] = []
        self.node = OwnNode("node-1", needs_pod_cidrs=needs_pod_cidrs, request_restart=self.restarts.append)

    def start(self, first: Node) -> "NodeTest":
        self.node.filter_changes([ObjectChange(None, first)])
        assert self.node.wait_ready(threading.Event()) is first
        return self

    def change_node(self, node: Node | None) -> list[str]:
        self.node.filter_changes([ObjectChange(self.node.current(), node)])
        return self.restarts


def test_changes_that_end_the_process_are_not_applied() -> None:
    """A Node that is created again before the exit is not applied either; changes of other objects are."""
    first, other = a_node(), decoded(node("node-2", "192.0.2.12"))
    test = NodeTest().start(first)
    changes = [ObjectChange(first, None), ObjectChange(None, other), ObjectChange(None, first)]
    assert test.node.filter_changes(changes) == (ObjectChange(None, other),)
    assert len(test.restarts) == 1


def test_lost_node_addresses_stay_in_use() -> None:
    """Other changes of the Node, such as labels, are applied."""
    first = a_node()
    test = NodeTest().start(first)
    lost = msgspec.structs.replace(decoded(node("node-1")), spec=first.spec)
    (kept,) = test.node.filter_changes([ObjectChange(first, lost)])
    assert isinstance(kept.current, Node)
    assert host_ips(kept.current) == host_ips(first)
    assert test.restarts == []


CIDRS: dict[str, Any] = {"podCIDRs": ["10.244.1.0/24"]}


@pytest.mark.parametrize(
    ("needs_pod_cidrs", "found", "text"),
    [
        (False, None, "Node 'node-1' not found; check --hostname-override"),
        (False, decoded(node("node-1")), "Node 'node-1' has no InternalIP and no ExternalIP"),
        (True, a_node(), "Node 'node-1' has no podCIDRs, which --detect-local-mode=NodeCIDR needs"),
    ],
)
def test_missing_requirement_is_the_error(needs_pod_cidrs: bool, found: Node | None, text: str) -> None:  # noqa: FBT001 - a row
    test = NodeTest(needs_pod_cidrs=needs_pod_cidrs)
    if found is not None:
        test.change_node(found)
    with pytest.raises(ApiServerError) as raised:
        test.node.wait_ready(threading.Event(), timeout=0.03, poll_interval=0.01)
    assert str(raised.value) == f"{text}; gave up after 0.03 s"


def test_missing_node_message_lists_the_nodes(caplog: pytest.LogCaptureFixture) -> None:
    """The server is asked for them when the wait is logged, and once more at its end."""
    answers = ["the Nodes are node-2", "the Nodes are node-2, node-3"]
    with pytest.raises(ApiServerError) as raised:
        NodeTest().node.wait_ready(
            threading.Event(), describe_nodes=lambda: answers.pop(0), timeout=0.03, poll_interval=0.01
        )
    missing = "Node 'node-1' not found; check --hostname-override"
    assert str(raised.value) == f"{missing}; the Nodes are node-2, node-3; gave up after 0.03 s"
    assert caplog.messages == [f"waiting: {missing}; the Nodes are node-2"]


def test_time_without_a_server_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    """The five-minute limit for the Node counts only while the server answers."""
    caplog.set_level(logging.INFO, "knft")
    test, polls = NodeTest(), 0

    def error_text() -> str:
        nonlocal polls
        polls += 1
        return "" if polls <= 100 or polls > 10_000 else "connection refused"

    class FakeCondition(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            return timeout is None

    test.node._changed = FakeCondition()
    with pytest.raises(ApiServerError, match=r"^Node 'node-1' not found.*; gave up after 300 s"):
        test.node.wait_ready(threading.Event(), error_text)
    # 100 seconds before the server was down, and 200 after.
    assert polls == 10_201
    assert caplog.messages[1:2] == ["waiting: connection refused"]


def test_knft_waits_five_minutes_for_the_node() -> None:
    test, polls = NodeTest(), list[float]()

    class FakeCondition(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            polls.append(timeout or 0)
            return False

    test.node._changed = FakeCondition()
    with pytest.raises(ApiServerError, match="gave up after 300 s"):
        test.node.wait_ready(threading.Event())
    assert polls == [1.0] * 300


def test_wait_ends_when_the_node_is_complete() -> None:
    test, found = NodeTest(needs_pod_cidrs=True), list[Node | None]()
    thread = threading.Thread(
        target=lambda: found.append(test.node.wait_ready(threading.Event(), poll_interval=20, timeout=100))
    )
    thread.start()
    test.change_node(decoded(node("node-1")))
    test.change_node(a_node())
    last = a_node(**CIDRS)
    test.change_node(last)
    thread.join(15)
    assert found == [last]
    assert not test.restarts


def test_stop_ends_the_wait() -> None:
    stop = threading.Event()
    stop.set()
    assert NodeTest().node.wait_ready(stop) is None


def test_changes_before_the_start_need_no_restart() -> None:
    test = NodeTest()
    for found in (a_node(), None, a_node("192.0.2.12")):
        test.change_node(found)
    assert not test.restarts


END = "; exiting, to be restarted; the rules stay"


def test_deleted_node_requests_a_restart_once() -> None:
    test = NodeTest().start(a_node())
    assert test.change_node(None) == [f"Node 'node-1' was deleted{END}"]
    # The second change requests nothing.
    assert len(test.change_node(a_node("192.0.2.12"))) == 1


def test_changed_addresses_request_a_restart() -> None:
    test = NodeTest().start(a_node("192.0.2.11", "2001:db8::11"))
    text = "addresses of Node 'node-1' changed from 192.0.2.11, 2001:db8::11 to 192.0.2.11, 2001:db8::12"
    assert test.change_node(a_node("192.0.2.11", "2001:db8::12")) == [text + END]


def test_unused_addresses_may_change() -> None:
    assert not NodeTest().start(a_node("192.0.2.11")).change_node(a_node("192.0.2.11", "192.0.2.12"))


def test_lost_addresses_request_no_restart() -> None:
    test = NodeTest().start(a_node())
    assert not test.change_node(decoded(node("node-1")))
    assert not test.change_node(a_node())
    assert test.change_node(a_node("192.0.2.12"))


def test_changed_pod_cidrs_request_a_restart_if_needed() -> None:
    other = {"podCIDRs": ["10.244.9.0/24"]}
    text = f"podCIDRs of Node 'node-1' changed from 10.244.1.0/24 to 10.244.9.0/24{END}"
    assert NodeTest(needs_pod_cidrs=True).start(a_node(**CIDRS)).change_node(a_node(**other)) == [text]
    assert NodeTest(needs_pod_cidrs=True).start(a_node(**CIDRS)).change_node(a_node())
    assert not NodeTest().start(a_node(**CIDRS)).change_node(a_node(**other))


def test_labels_taints_and_other_nodes_request_no_restart() -> None:
    test = NodeTest().start(a_node())
    labelled = node("node-1", "192.0.2.11", taints=[{"key": "any", "effect": "NoSchedule"}])
    labelled["metadata"]["labels"] = {"topology.kubernetes.io/zone": "b"}
    test.node.filter_changes([ObjectChange(decoded(node("node-2", "192.0.2.12")), None)])
    assert not test.change_node(decoded(labelled))
    assert test.node.current() == decoded(labelled)


def test_host_ips_are_one_per_family_and_internal_first() -> None:
    found = a_node("192.0.2.11", "192.0.2.12")
    addresses = [{"type": "ExternalIP", "address": "198.51.100.1"}, {"type": "ExternalIP", "address": "2001:db8::1"}]
    document = msgspec.to_builtins(found)
    document["status"]["addresses"] = [
        *addresses,
        *document["status"]["addresses"],
        {"type": "Hostname", "address": "n"},
    ]
    assert host_ips(decoded(document)) == ("192.0.2.11", "2001:db8::1")


def test_tainted_or_deleted_node_is_not_eligible() -> None:
    leaving = node("node-1", "192.0.2.11")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    tainted = a_node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}])
    assert [is_eligible(item) for item in (None, a_node(), decoded(leaving), tainted)] == [False, True, False, False]
    test = NodeTest().start(a_node())
    eligible = [test.node.eligible]
    assert not test.change_node(tainted)
    assert [*eligible, test.node.eligible] == [True, False]
