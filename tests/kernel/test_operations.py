"""A sync sends what changed and nothing else: the transactions are read, and counted."""

from typing import Any

import pytest

from knft.errors import KernelError, LibraryDiedError
from knft.model.names import Family
from knft.nft.transaction import Transaction
from knft.render.names import HAIRPIN
from tests.kernel.harness import KernelHarness, held_by_fresh_start, operations, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
BOTH = pytest.mark.parametrize("family", list(Family))


def _with(harness: KernelHarness, endpoints: range, **spec: Any) -> KernelHarness:
    harness.apply(service("web", **spec), *slices("web", endpoints))
    harness.sync()
    return harness


@BOTH
def test_replacing_a_remote_endpoint_sends_two_element_operations(harness: KernelHarness, family: Family) -> None:
    """One element is removed and the same key added with the new endpoint; no chain, no verdict."""
    _with(harness, range(1, 11))
    harness.apply(*slices("web", [*range(1, 5), 99, *range(6, 11)]))
    harness.sync()

    sent = harness.last(family)
    frontend, start = ("10.96.0.10", "10.244.2.") if family is Family.IPV4 else ("fd00:10:96::10", "fd00:10:244:2::")
    (removed,) = sent.removed["endpoints-tcp"]
    assert {"endpoints-tcp": {removed: (f"{start}99", 8080)}} == sent.added
    assert (frontend, 80) == removed[:2]
    assert operations(sent) == 2
    assert sent.chains == ()


@BOTH
@pytest.mark.parametrize(
    ("numbers", "count"),
    [
        pytest.param([*range(11, 22)], 3, id="added: the endpoint, and the verdict anew"),
        pytest.param([*range(11, 20)], 3, id="the last removed: the endpoint, and the verdict anew"),
        pytest.param([11, 12, *range(14, 21)], 5, id="one from the middle removed: its place is taken by the last"),
    ],
)
def test_scaling_by_one_touches_three_elements(
    harness: KernelHarness, family: Family, numbers: list[int], count: int
) -> None:
    """Three elements at most are touched, one that has another value being removed and added."""
    _with(harness, range(11, 21))
    harness.apply(*slices("web", numbers))
    harness.sync()

    sent = harness.last(family)
    touched = {(name, key) for name, keys in sent.removed.items() for key in keys}
    touched |= {(name, key) for name, added in sent.added.items() for key in added}
    assert count == operations(sent)
    assert len(touched) <= 3
    assert sent.chains == ()


def test_a_sync_without_changes_sends_nothing(harness: KernelHarness) -> None:
    _with(harness, range(1, 4))
    harness.sync()
    assert harness.last().is_empty


def test_a_change_that_means_nothing_sends_nothing(harness: KernelHarness) -> None:
    """A label, an annotation, or the order of endpoints in their slice."""
    _with(harness, range(1, 4))
    changed = service("web")
    changed["metadata"] |= {"annotations": {"a": "b"}, "labels": {"c": "d"}}
    harness.apply(changed, *slices("web", [3, 1, 2]))
    harness.sync()
    assert harness.last().is_empty


def test_a_node_that_is_not_this_one_changes_nothing(harness: KernelHarness) -> None:
    """Neither its zone nor its addresses; it may come after the node's own."""
    _with(harness, range(1, 4), node_port=30080)
    for name, address in (("node-1", "192.0.2.11"), ("node-2", "192.0.2.12")):
        addresses = {"addresses": [{"type": "InternalIP", "address": address}]}
        harness.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": addresses})
        harness.sync()
    assert harness.last().is_empty
    assert {key for name, key in harness.held().contents.members if name == "nodeport-ips"} == {("192.0.2.11",)}


def test_the_table_is_not_listed_on_the_sync_path(harness: KernelHarness) -> None:
    """It is read once, at the start."""
    for count in range(1, 6):
        _with(harness, range(count))
    assert {family: port.reads for family, port in harness.ports.items()} == dict.fromkeys(Family, 1)


def test_a_restart_on_an_unchanged_cluster_sends_nothing(harness: KernelHarness) -> None:
    """Also where the order of endpoints has a history."""
    _with(harness, range(1, 11), node_port=30080)
    harness.apply(*slices("web", [2, 3, 5, 7, 8, 9, 20], local=[3]))
    harness.sync()
    second = KernelHarness(harness.namespace)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    second.sync()
    for family in Family:
        assert second.last(family).is_empty, second.last(family)


def test_what_is_missing_or_too_much_is_mended_at_start(harness: KernelHarness) -> None:
    """A restart on a table that somebody edited sends the difference."""
    _with(harness, range(1, 4))
    before = harness.held()
    edits = (
        "delete element ip knft endpoints-tcp { 10.96.0.10 . 80 . 1 }",
        "add element ip knft cluster-ips { 10.96.0.77 }",
        "add element ip knft service-ips { 10.96.0.77 . tcp . 80 : accept }",
    )
    harness.namespace.run(["nft", "-f", "-"], stdin="\n".join(edits))
    second = KernelHarness(harness.namespace)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    second.sync()
    assert operations(second.last()) == 3
    assert before == second.held()


def test_members_that_two_services_share_stay_until_the_last_goes(harness: KernelHarness) -> None:
    """One local pod serves two Services: its hairpin element is added once and removed once."""
    harness.apply(service("a", 1), *slices("a", [1], local=[1]), service("b", 2), *slices("b", [1], local=[1]))
    harness.sync()
    assert len(harness.last().added[HAIRPIN]) == 1
    harness.delete("Service", "a")
    harness.sync()
    assert HAIRPIN not in harness.last().removed
    harness.delete("Service", "b")
    harness.sync()
    assert len(harness.last().removed[HAIRPIN]) == 1


def test_hairpin_elements_go_after_what_led_to_them(harness: KernelHarness) -> None:
    """A packet that was led to its own sender before a commit is masqueraded after it."""
    harness.apply(service("web"), *slices("web", [11, 12], local=[12]))
    harness.sync()
    sent = harness.ports[Family.IPV4].sent
    sent.clear()
    harness.apply(*slices("web", [11]))
    report = harness.sync()[Family.IPV4]
    pools, hairpins = sent
    assert "endpoints-tcp" in pools.removed
    assert hairpins == Transaction(hairpins.family, hairpins.table, removed={HAIRPIN: hairpins.removed[HAIRPIN]})
    assert report.removed == operations(hairpins) + sum(map(len, pools.removed.values()))


@pytest.mark.parametrize("error", [KernelError("refused"), LibraryDiedError("died")], ids=["refused", "died"])
def test_what_could_not_be_removed_late_is_removed_by_a_comparison(harness: KernelHarness, error: KernelError) -> None:
    """What was committed before it is kept, so that nobody is blamed for it."""
    harness.apply(service("web"), *slices("web", [11, 12], local=[12]))
    harness.sync()
    port = harness.ports[Family.IPV4]
    refusals = [error]

    def refuse(transaction: Transaction) -> None:
        if HAIRPIN in transaction.removed and refusals:
            raise refusals.pop()

    port.meddle = refuse
    harness.apply(*slices("web", [11]))
    report = harness.sync()[Family.IPV4]
    assert not refusals
    assert report.full
    assert report.left_out == {}
    assert held_by_fresh_start(harness) == harness.held().contents


def test_nobody_is_left_out_where_late_removals_are_refused_for_good(namespace: Namespace) -> None:
    """The element stays, which harms nobody, and its removal is tried again."""
    now = 100.0
    harness = KernelHarness(namespace, timer=lambda: now)
    harness.apply(service("web"), *slices("web", [11, 12], local=[12]))
    harness.sync()
    port = harness.ports[Family.IPV4]

    def refuse(transaction: Transaction) -> None:
        if HAIRPIN in transaction.removed:
            msg = "refused for the test"
            raise KernelError(msg)

    port.meddle = refuse
    harness.apply(*slices("web", [11]), service("late", 20), *slices("late", [15]))
    report = harness.sync()[Family.IPV4]
    assert report.left_out == {}
    assert report.unswept == "refused for the test"
    assert not harness.proxiers[Family.IPV4]._committed.swept
    assert ("10.96.0.20", "tcp", 80) in {key for _, key in harness.held().contents.entries}
    port.heal()
    assert report.again_within is not None
    now += report.again_within
    assert harness.sync()[Family.IPV4].unswept == ""
    assert held_by_fresh_start(harness) == harness.held().contents


def test_a_hairpin_element_that_somebody_has_removed_just_before(harness: KernelHarness) -> None:
    harness.apply(service("web"), *slices("web", [11, 12, 13], local=[12, 13]))
    harness.sync()
    key = "10.244.2.12 . 10.244.2.12 . tcp . 8080"
    edits = [f"delete element ip knft {HAIRPIN} {{ {key} }}"]

    def meddle(transaction: Transaction) -> None:
        if HAIRPIN in transaction.removed and edits:
            harness.namespace.run(["nft", "-f", "-"], stdin=edits.pop())

    harness.ports[Family.IPV4].meddle = meddle
    harness.apply(*slices("web", [11]))
    report = harness.sync()[Family.IPV4]
    assert not edits
    assert report.left_out == {}
    assert held_by_fresh_start(harness) == harness.held().contents


@BOTH
def test_hairpin_elements_are_those_of_local_endpoints(harness: KernelHarness, family: Family) -> None:
    """A remote endpoint that dials itself through this node is that node's to masquerade (C.6, 1)."""
    harness.apply(service("web", node_port=30080), *slices("web", [11, 12, 13, 14], local=[12, 14]))
    harness.sync()
    start = "10.244.2." if family is Family.IPV4 else "fd00:10:244:2::"
    found = {key for name, key in harness.held(family).contents.members if name == HAIRPIN}
    assert found == {(f"{start}{number}", f"{start}{number}", "tcp", 8080) for number in (12, 14)}


def test_deleting_everything_leaves_no_element(harness: KernelHarness) -> None:
    _with(harness, range(1, 4), node_port=30080)
    for kind, name in harness.objects:
        harness.delete(kind, name)
    harness.sync()
    contents = harness.held().contents
    assert contents.entries == {}
    assert contents.arrays == {}
    assert {name for name, _ in contents.members} == {"service-cidrs"}
