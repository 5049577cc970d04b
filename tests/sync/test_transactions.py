"""Transactions: a sync sends only what changed."""

from typing import Any

import pytest

from knft.errors import KernelError, LibraryDiedError
from knft.families import Family
from knft.nft.transaction import Transaction
from knft.render.names import HAIRPIN
from tests.support.kernel_harness import KernelHarness, contents_of_fresh_start, element_operations, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
BOTH = pytest.mark.parametrize("family", list(Family))


def _sync_web_service(harness: KernelHarness, endpoints: range, **spec: Any) -> KernelHarness:
    harness.apply(service("web", **spec), *slices("web", endpoints))
    harness.sync()
    return harness


@BOTH
def test_replacing_a_remote_endpoint_sends_two_element_operations(harness: KernelHarness, family: Family) -> None:
    """Removes one element and adds its key with the new endpoint; no chain and no verdict."""
    _sync_web_service(harness, range(1, 11))
    harness.apply(*slices("web", [*range(1, 5), 99, *range(6, 11)]))
    harness.sync()

    sent = harness.last_transaction(family)
    frontend, start = ("10.96.0.10", "10.244.2.") if family is Family.IPV4 else ("fd00:10:96::10", "fd00:10:244:2::")
    (removed,) = sent.removed["endpoints-tcp"]
    assert {"endpoints-tcp": {removed: (f"{start}99", 8080)}} == sent.added
    assert (frontend, 80) == removed[:2]
    assert element_operations(sent) == 2
    assert sent.chains == ()


@BOTH
@pytest.mark.parametrize(
    ("numbers", "count"),
    [
        pytest.param([*range(11, 22)], 3, id="added: the endpoint, and the changed verdict"),
        pytest.param([*range(11, 20)], 3, id="last one removed: the endpoint, and the changed verdict"),
        pytest.param([11, 12, *range(14, 21)], 5, id="middle one removed: the last one takes its index"),
    ],
)
def test_scaling_by_one_touches_at_most_three_elements(
    harness: KernelHarness, family: Family, numbers: list[int], count: int
) -> None:
    """A changed value is one element, removed and added."""
    _sync_web_service(harness, range(11, 21))
    harness.apply(*slices("web", numbers))
    harness.sync()

    sent = harness.last_transaction(family)
    touched = {(name, key) for name, keys in sent.removed.items() for key in keys}
    touched |= {(name, key) for name, added in sent.added.items() for key in added}
    assert count == element_operations(sent)
    assert len(touched) <= 3
    assert sent.chains == ()


def test_a_sync_without_changes_sends_nothing(harness: KernelHarness) -> None:
    _sync_web_service(harness, range(1, 4))
    harness.sync()
    assert harness.last_transaction().is_empty


def test_irrelevant_change_sends_nothing(harness: KernelHarness) -> None:
    """A label, an annotation, or the order of endpoints in a slice."""
    _sync_web_service(harness, range(1, 4))
    changed = service("web")
    changed["metadata"] |= {"annotations": {"a": "b"}, "labels": {"c": "d"}}
    harness.apply(changed, *slices("web", [3, 1, 2]))
    harness.sync()
    assert harness.last_transaction().is_empty


def test_other_node_sends_nothing(harness: KernelHarness) -> None:
    """Neither its zone nor its addresses, even if it arrives after this node."""
    _sync_web_service(harness, range(1, 4), node_port=30080)
    for name, address in (("node-1", "192.0.2.11"), ("node-2", "192.0.2.12")):
        addresses = {"addresses": [{"type": "InternalIP", "address": address}]}
        harness.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": addresses})
        harness.sync()
    assert harness.last_transaction().is_empty
    assert {key for name, key in harness.listing().contents.members if name == "nodeport-ips"} == {("192.0.2.11",)}


def test_the_table_is_not_listed_on_the_sync_path(harness: KernelHarness) -> None:
    """It is read once at the start."""
    for count in range(1, 6):
        _sync_web_service(harness, range(count))
    assert {family: checked.reads for family, checked in harness.checked_tables.items()} == dict.fromkeys(Family, 1)


def test_a_restart_on_an_unchanged_cluster_sends_nothing(harness: KernelHarness) -> None:
    """Even if earlier changes determined the order of endpoints."""
    _sync_web_service(harness, range(1, 11), node_port=30080)
    harness.apply(*slices("web", [2, 3, 5, 7, 8, 9, 20], local=[3]))
    harness.sync()
    second = KernelHarness(harness.namespace)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    second.sync()
    for family in Family:
        assert second.last_transaction(family).is_empty, second.last_transaction(family)


def test_restart_repairs_missing_and_superfluous_elements(harness: KernelHarness) -> None:
    """A restart on a table that another program has changed sends the difference."""
    _sync_web_service(harness, range(1, 4))
    before = harness.listing()
    edits = (
        "delete element ip knft endpoints-tcp { 10.96.0.10 . 80 . 1 }",
        "add element ip knft cluster-ips { 10.96.0.77 }",
        "add element ip knft service-ips { 10.96.0.77 . tcp . 80 : accept }",
    )
    harness.namespace.run(["nft", "-f", "-"], stdin="\n".join(edits))
    second = KernelHarness(harness.namespace)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    second.sync()
    assert element_operations(second.last_transaction()) == 3
    assert before == second.listing()


def test_shared_elements_stay_until_the_last_service_is_deleted(harness: KernelHarness) -> None:
    """Two Services with the same local pod: its hairpin element is added once and removed once."""
    harness.apply(service("a", 1), *slices("a", [1], local=[1]), service("b", 2), *slices("b", [1], local=[1]))
    harness.sync()
    assert len(harness.last_transaction().added[HAIRPIN]) == 1
    harness.delete("Service", "a")
    harness.sync()
    assert HAIRPIN not in harness.last_transaction().removed
    harness.delete("Service", "b")
    harness.sync()
    assert len(harness.last_transaction().removed[HAIRPIN]) == 1


def test_hairpin_elements_are_removed_in_the_cleanup_phase(harness: KernelHarness) -> None:
    """A packet that was sent back to its own sender before the commit is still masqueraded after it."""
    harness.apply(service("web"), *slices("web", [11, 12], local=[12]))
    harness.sync()
    sent = harness.checked_tables[Family.IPV4].transactions
    sent.clear()
    harness.apply(*slices("web", [11]))
    report = harness.sync()[Family.IPV4]
    pools, hairpins = sent
    assert "endpoints-tcp" in pools.removed
    assert hairpins == Transaction(hairpins.family, hairpins.table, removed={HAIRPIN: hairpins.removed[HAIRPIN]})
    assert report.elements_removed == element_operations(hairpins) + sum(map(len, pools.removed.values()))


@pytest.mark.parametrize("error", [KernelError("refused"), LibraryDiedError("died")], ids=["refused", "died"])
def test_failed_deferred_removal_is_repeated_by_comparison(harness: KernelHarness, error: KernelError) -> None:
    """The main phase stays committed, so no Service port is quarantined."""
    harness.apply(service("web"), *slices("web", [11, 12], local=[12]))
    harness.sync()
    checked = harness.checked_tables[Family.IPV4]
    refusals = [error]

    def refuse(transaction: Transaction) -> None:
        if HAIRPIN in transaction.removed and refusals:
            raise refusals.pop()

    checked.on_commit = refuse
    harness.apply(*slices("web", [11]))
    report = harness.sync()[Family.IPV4]
    assert not refusals
    assert report.is_full
    assert report.quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_refused_deferred_removal_quarantines_no_service_port(namespace: Namespace) -> None:
    """The element stays, which is harmless, and its removal is retried."""
    now = 100.0
    harness = KernelHarness(namespace, clock=lambda: now)
    harness.apply(service("web"), *slices("web", [11, 12], local=[12]))
    harness.sync()
    checked = harness.checked_tables[Family.IPV4]

    def refuse(transaction: Transaction) -> None:
        if HAIRPIN in transaction.removed:
            msg = "refused for the test"
            raise KernelError(msg)

    checked.on_commit = refuse
    harness.apply(*slices("web", [11]), service("late", 20), *slices("late", [15]))
    report = harness.sync()[Family.IPV4]
    assert report.quarantined == {}
    assert report.orphan_error == "refused for the test"
    assert not harness.proxiers[Family.IPV4]._writer.orphans_removed
    assert ("10.96.0.20", "tcp", 80) in {key for _, key in harness.listing().contents.entries}
    checked.stop_failing()
    assert report.next_sync_within is not None
    now += report.next_sync_within
    assert harness.sync()[Family.IPV4].orphan_error == ""
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_hairpin_element_removed_by_another_program(harness: KernelHarness) -> None:
    harness.apply(service("web"), *slices("web", [11, 12, 13], local=[12, 13]))
    harness.sync()
    key = "10.244.2.12 . 10.244.2.12 . tcp . 8080"
    edits = [f"delete element ip knft {HAIRPIN} {{ {key} }}"]

    def remove_first(transaction: Transaction) -> None:
        if HAIRPIN in transaction.removed and edits:
            harness.namespace.run(["nft", "-f", "-"], stdin=edits.pop())

    harness.checked_tables[Family.IPV4].on_commit = remove_first
    harness.apply(*slices("web", [11]))
    report = harness.sync()[Family.IPV4]
    assert not edits
    assert report.quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


@BOTH
def test_hairpin_elements_are_those_of_local_endpoints(harness: KernelHarness, family: Family) -> None:
    """A remote endpoint's node masquerades its hairpin traffic (docs/behaviour/nftables.md#service-ports)."""
    harness.apply(service("web", node_port=30080), *slices("web", [11, 12, 13, 14], local=[12, 14]))
    harness.sync()
    start = "10.244.2." if family is Family.IPV4 else "fd00:10:244:2::"
    found = {key for name, key in harness.listing(family).contents.members if name == HAIRPIN}
    assert found == {(f"{start}{number}", f"{start}{number}", "tcp", 8080) for number in (12, 14)}


def test_deleting_everything_leaves_no_element(harness: KernelHarness) -> None:
    _sync_web_service(harness, range(1, 4), node_port=30080)
    for kind, name in harness.objects:
        harness.delete(kind, name)
    harness.sync()
    contents = harness.listing().contents
    assert contents.entries == {}
    assert contents.arrays == {}
    assert {name for name, _ in contents.members} == {"service-cidrs"}
