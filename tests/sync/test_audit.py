"""The audit: compares the kernel's table with what was committed, beside the syncs."""

import pytest
from msgspec import structs

from knft.errors import KernelError
from knft.families import Family
from knft.nft.codec.listing import TableListing
from knft.sync.observer import MAX_NAMES, audit_result
from tests.support import equivalence
from tests.support.kernel_harness import (
    CONFIG,
    FOREIGN_OBJECTS,
    CheckedTable,
    KernelHarness,
    harness_with_service,
    service,
    slices,
)
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize(
    ("damage", "count"),
    [
        ("delete element ip knft cluster-ips { 10.96.0.10 }", 1),
        ("add element ip knft cluster-ips { 10.96.0.99 }", 1),
        ("flush chain ip knft services", 1),
        ("flush chain ip knft pool-tcp-3", 1),
        ("flush chain ip knft affinity-10800-pool-tcp-2", 1),
        ("flush chain ip knft affinity-10800-known-tcp-0", 1),
        ("flush map ip knft endpoint-ids-tcp", 2),
        ("add element ip knft endpoint-ids-tcp { 10.96.0.30 . 80 . 2 : 5 }", 1),
        ("flush map ip knft endpoints-tcp", 5),
        ("delete table ip knft", 1),
        ("add element ip knft pod-cidrs { 10.99.0.1-10.99.0.9 }", 1),
    ],
)
def test_audit_finds_damage_and_next_sync_repairs_it(namespace: Namespace, damage: str, count: int) -> None:
    """The audit reads the table; the syncs do not."""
    harness = harness_with_service(namespace)
    harness.apply(service("sticky", 30, sessionAffinity="ClientIP"), *slices("sticky", [21, 22]))
    harness.sync()
    proxier, checked, second = (
        harness.proxiers[Family.IPV4],
        harness.checked_tables[Family.IPV4],
        harness.tables[Family.IPV4],
    )
    before, reads = harness.listing(), checked.reads
    assert proxier.audit(second) == 0
    namespace.run(["nft", "-f", "-"], stdin=damage)
    assert proxier.audit(second) == count
    assert reads == checked.reads
    assert harness.sync()[Family.IPV4].is_full
    after = harness.listing()
    assert (before.rule_counts, before.hooks) == (after.rule_counts, after.hooks)
    assert equivalence.difference(_facts(before), _facts(after)) == []
    assert proxier.audit(second) == 0


def _facts(listing: TableListing) -> equivalence.Facts:
    """Return the facts of a table; if all endpoint IDs are lost, the endpoints get others."""
    return equivalence.facts(listing, Family.IPV4, CONFIG)


def test_audit_ignores_what_a_rule_has_counted(namespace: Namespace) -> None:
    """Packets change the numbers of the rule; the rule itself must not change."""
    harness = KernelHarness(namespace, structs.replace(CONFIG, drop_invalid_packets=True))
    harness.sync()
    proxier, second = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4]
    listed = namespace.run(["nft", "list", "chain", "ip", "knft", "filter-forward"]).stdout
    counted = listed.replace("counter packets 0 bytes 0", "counter packets 7 bytes 300")
    namespace.run(["nft", "-f", "-"], stdin=f"flush chain ip knft filter-forward\n{counted}")
    assert proxier.audit(second) == 0
    accepting = listed.replace("bytes 0 drop", "bytes 0 accept")
    namespace.run(["nft", "-f", "-"], stdin=f"flush chain ip knft filter-forward\n{accepting}")
    assert proxier.audit(second) == 1
    harness.sync()
    assert namespace.run(["nft", "list", "chain", "ip", "knft", "filter-forward"]).stdout == listed


def test_audit_ignores_concurrent_syncs(namespace: Namespace) -> None:
    """A sync commits while the table is listed, and another just after. The audit still finds real damage."""
    harness = harness_with_service(namespace)
    proxier, table = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4]

    class SyncingPort(CheckedTable):
        def read(self) -> TableListing | None:
            harness.apply(*slices("web", range(12, 17)))
            harness.sync()
            listing = super().read()
            harness.apply(*slices("web", range(13, 18)))
            harness.sync()
            return listing

    assert proxier.audit(SyncingPort(table)) == 0
    namespace.run(["nft", "delete", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.10 }"])
    assert proxier.audit(SyncingPort(table)) == 1


def test_audit_finds_foreign_objects_and_next_sync_deletes_them(namespace: Namespace) -> None:
    harness = harness_with_service(namespace)
    namespace.run(["nft", "-f", "-"], stdin=FOREIGN_OBJECTS)
    proxier, second = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4]
    assert proxier.audit(second) == 2
    assert harness.sync()[Family.IPV4].repair.repaired
    assert proxier.audit(second) == 0


def test_audit_during_commit_is_skipped(namespace: Namespace) -> None:
    """An audit that cannot read the table does not affect later ones."""
    harness = harness_with_service(namespace)
    proxier, table, checked = (
        harness.proxiers[Family.IPV4],
        harness.tables[Family.IPV4],
        harness.checked_tables[Family.IPV4],
    )
    found: list[int | None] = []
    checked.on_commit = lambda _: found.append(proxier.audit(table))
    harness.apply(*slices("web", [21, 22]))
    harness.sync()
    assert set(found) == {None}
    checked.on_commit = lambda _: None
    failing = CheckedTable(table)
    failing.refused_reads = 1
    with pytest.raises(KernelError):
        proxier.audit(failing)
    assert proxier.audit(table) == 0


def test_result_of_an_audit_names_chains_and_sets_once_and_not_all() -> None:
    elements = [("chain-00", (number,)) for number in range(3)]
    found = audit_result([*elements, *((f"chain-{number:02}", ()) for number in range(40))])
    assert (found.differences, found.error) == (43, "")
    assert found.names == tuple(f"chain-{number:02}" for number in range(MAX_NAMES))
