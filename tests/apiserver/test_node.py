"""The own Node: what knft waits for at the start, and what ends it later (J.3)."""

import logging
import threading
from typing import Any

import msgspec
import pytest

from knft.apiserver.node import OwnNode, host_ips, is_eligible
from knft.errors import ClusterError
from knft.model.objects import Change, Node
from tests.apiserver.cluster import Object, node


def made(document: Object) -> Node:
    return msgspec.convert(document, Node)


def a_node(*addresses: str, **spec: Any) -> Node:
    return made(node("node-1", *(addresses or ("192.0.2.11",)), **spec))


class Own:
    """An OwnNode and the sentences with which it ends the process."""

    def __init__(self, *, by_pod_cidrs: bool = False) -> None:
        self.ends: list[str] = []
        self.own = OwnNode("node-1", by_pod_cidrs=by_pod_cidrs, end=self.ends.append)

    def begun(self, first: Node) -> "Own":
        self.own.take([Change(None, first)])
        assert self.own.wait_ready(threading.Event()) is first
        return self

    def becomes(self, after: Node | None) -> list[str]:
        self.own.take([Change(self.own.current(), after)])
        return self.ends


def test_rules_do_not_follow_what_the_process_ends_by() -> None:
    """Nor the Node that is made again before it has ended; other objects they do follow."""
    first, other = a_node(), made(node("node-2", "192.0.2.12"))
    it = Own().begun(first)
    changes = [Change(first, None), Change(None, other), Change(None, first)]
    assert it.own.take(changes) == (Change(None, other),)
    assert len(it.ends) == 1


def test_rules_keep_the_addresses_that_a_node_has_lost() -> None:
    """Its labels they do follow."""
    first = a_node()
    it = Own().begun(first)
    lost = msgspec.structs.replace(made(node("node-1")), spec=first.spec)
    (kept,) = it.own.take([Change(first, lost)])
    assert isinstance(kept.current, Node)
    assert host_ips(kept.current) == host_ips(first)
    assert it.ends == []


CIDRS: dict[str, Any] = {"podCIDRs": ["10.244.1.0/24"]}


@pytest.mark.parametrize(
    ("by_pod_cidrs", "found", "said"),
    [
        (False, None, "there is no Node node-1 (is --hostname-override right?)"),
        (False, made(node("node-1")), "Node node-1 has no InternalIP and no ExternalIP"),
        (True, a_node(), "Node node-1 has no podCIDRs, and --detect-local-mode is NodeCIDR"),
    ],
)
def test_the_last_thing_that_lacks_is_the_error(by_pod_cidrs: bool, found: Node | None, said: str) -> None:  # noqa: FBT001 - a row
    it = Own(by_pod_cidrs=by_pod_cidrs)
    if found is not None:
        it.becomes(found)
    with pytest.raises(ClusterError) as raised:
        it.own.wait_ready(threading.Event(), patience=0.03, poll=0.01)
    assert str(raised.value) == f"{said}; it was waited for 0.03 s"


def test_a_server_that_does_not_answer_is_waited_for_without_limit(caplog: pytest.LogCaptureFixture) -> None:
    """J.3: five minutes are for the Node, of which nobody knows while the server is away."""
    caplog.set_level(logging.INFO, "knft")
    it, looks = Own(), 0

    def trouble() -> str:
        nonlocal looks
        looks += 1
        return "" if looks <= 100 or looks > 10_000 else "connection refused"

    class Waited(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            return timeout is None

    it.own._news = Waited()
    with pytest.raises(ClusterError, match=r"^there is no Node node-1 .*; it was waited for 300 s"):
        it.own.wait_ready(threading.Event(), trouble)
    # A hundred seconds before the server was away, and two hundred after.
    assert looks == 10_201
    assert caplog.messages[1:2] == ["waiting: connection refused"]


def test_it_is_waited_for_five_minutes_a_look_each_second() -> None:
    it, looks = Own(), list[float]()

    class Waited(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            looks.append(timeout or 0)
            return False

    it.own._news = Waited()
    with pytest.raises(ClusterError, match="300 s"):
        it.own.wait_ready(threading.Event())
    assert looks == [1.0] * 300


def test_it_goes_on_as_soon_as_all_is_there() -> None:
    it, found = Own(by_pod_cidrs=True), list[Node | None]()
    thread = threading.Thread(target=lambda: found.append(it.own.wait_ready(threading.Event(), poll=20, patience=100)))
    thread.start()
    it.becomes(made(node("node-1")))
    it.becomes(a_node())
    last = a_node(**CIDRS)
    it.becomes(last)
    thread.join(15)
    assert found == [last]
    assert not it.ends


def test_it_waits_no_longer_than_knft_runs() -> None:
    stop = threading.Event()
    stop.set()
    assert Own().own.wait_ready(stop) is None


def test_before_the_start_anything_may_change() -> None:
    it = Own()
    for found in (a_node(), None, a_node("192.0.2.12")):
        it.becomes(found)
    assert not it.ends


END = "; knft ends, to begin anew, and the rules stay"


def test_a_node_that_is_deleted_ends_knft() -> None:
    it = Own().begun(a_node())
    assert it.becomes(None) == [f"Node node-1 was deleted{END}"]
    # Once is enough.
    assert len(it.becomes(a_node("192.0.2.12"))) == 1


def test_other_addresses_end_knft() -> None:
    it = Own().begun(a_node("192.0.2.11", "2001:db8::11"))
    said = "the addresses of Node node-1 were 192.0.2.11, 2001:db8::11 and are 192.0.2.11, 2001:db8::12"
    assert it.becomes(a_node("192.0.2.11", "2001:db8::12")) == [said + END]


def test_addresses_that_do_not_count_may_change() -> None:
    assert not Own().begun(a_node("192.0.2.11")).becomes(a_node("192.0.2.11", "192.0.2.12"))


def test_no_addresses_at_all_are_better_than_an_end() -> None:
    it = Own().begun(a_node())
    assert not it.becomes(made(node("node-1")))
    assert not it.becomes(a_node())
    assert it.becomes(a_node("192.0.2.12"))


def test_other_pod_cidrs_end_knft_where_they_matter() -> None:
    other = {"podCIDRs": ["10.244.9.0/24"]}
    said = f"the podCIDRs of Node node-1 were 10.244.1.0/24 and are 10.244.9.0/24{END}"
    assert Own(by_pod_cidrs=True).begun(a_node(**CIDRS)).becomes(a_node(**other)) == [said]
    assert Own(by_pod_cidrs=True).begun(a_node(**CIDRS)).becomes(a_node())
    assert not Own().begun(a_node(**CIDRS)).becomes(a_node(**other))


def test_labels_and_taints_and_other_nodes_end_nothing() -> None:
    it = Own().begun(a_node())
    labelled = node("node-1", "192.0.2.11", taints=[{"key": "any", "effect": "NoSchedule"}])
    labelled["metadata"]["labels"] = {"topology.kubernetes.io/zone": "b"}
    it.own.take([Change(made(node("node-2", "192.0.2.12")), None)])
    assert not it.becomes(made(labelled))
    assert it.own.current() == made(labelled)


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
    it = Own().begun(a_node())
    eligible = [it.own.eligible]
    assert not it.becomes(tainted)
    assert [*eligible, it.own.eligible] == [True, False]
