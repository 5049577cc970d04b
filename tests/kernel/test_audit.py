"""The audit: whether the kernel holds what was committed, found out beside the syncs."""

import pytest

from knft.errors import KernelError
from knft.model.names import Family
from knft.nft.codec.listing import Listing
from knft.render.names import STICKY_PORTS
from tests.kernel.harness import ALIEN, CheckedPort, filled, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize(
    ("damage", "count"),
    [
        ("delete element ip knft cluster-ips { 10.96.0.10 }", 1),
        ("add element ip knft cluster-ips { 10.96.0.99 }", 1),
        ("flush chain ip knft services", 1),
        ("flush chain ip knft pool-tcp-3", 1),
        ("flush chain ip knft sticky-{number}-cluster", 1),
        ("flush map ip knft endpoints-tcp", 5),
        ("delete table ip knft", 1),
        ("add element ip knft pod-cidrs { 10.99.0.1-10.99.0.9 }", 1),
    ],
)
def test_an_audit_finds_what_was_broken_and_the_next_sync_mends_it(
    namespace: Namespace, damage: str, count: int
) -> None:
    """The audit reads, beside the syncs, which do not."""
    harness = filled(namespace)
    harness.apply(service("sticky", 30, sessionAffinity="ClientIP"), *slices("sticky", [21, 22]))
    harness.sync()
    proxier, port, second = (harness.proxiers[Family.IPV4], harness.ports[Family.IPV4], harness.tables[Family.IPV4])
    before, reads = harness.held(), port.reads
    assert proxier.audit(second) == 0
    (number,) = {key[0] for container, key in before.contents.entries if container == STICKY_PORTS}
    namespace.run(["nft", "-f", "-"], stdin=damage.replace("{number}", str(number)))
    assert proxier.audit(second) == count
    assert reads == port.reads
    assert harness.sync()[Family.IPV4].full
    after = harness.held()
    assert (before.chains, before.contents, before.hooks) == (after.chains, after.contents, after.hooks)
    assert proxier.audit(second) == 0


def test_an_audit_takes_no_sync_for_damage(namespace: Namespace) -> None:
    """One is committed while the table is listed, another just after; what was broken besides is found all the same."""
    harness = filled(namespace)
    proxier, table = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4]

    class Busy(CheckedPort):
        def read(self) -> Listing | None:
            harness.apply(*slices("web", range(12, 17)))
            harness.sync()
            listing = super().read()
            harness.apply(*slices("web", range(13, 18)))
            harness.sync()
            return listing

    assert proxier.audit(Busy(table)) == 0
    namespace.run(["nft", "delete", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.10 }"])
    assert proxier.audit(Busy(table)) == 1


def test_an_audit_is_not_about_what_is_not_knfts(namespace: Namespace) -> None:
    harness = filled(namespace)
    namespace.run(["nft", "-f", "-"], stdin=ALIEN)
    assert harness.proxiers[Family.IPV4].audit(harness.tables[Family.IPV4]) == 0


def test_an_audit_that_begins_during_a_commit_ends_at_once(namespace: Namespace) -> None:
    """And one that cannot read leaves nothing behind."""
    harness = filled(namespace)
    proxier, table, port = harness.proxiers[Family.IPV4], harness.tables[Family.IPV4], harness.ports[Family.IPV4]
    found: list[int | None] = []
    port.meddle = lambda _: found.append(proxier.audit(table))
    harness.apply(*slices("web", [21, 22]))
    harness.sync()
    assert set(found) == {None}
    port.meddle = lambda _: None
    failing = CheckedPort(table)
    failing.refuse_reads = 1
    with pytest.raises(KernelError):
        proxier.audit(failing)
    assert proxier.audit(table) == 0
