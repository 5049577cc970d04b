"""Recovery from refused commits, changed rules and missing tables; test_affinity_recovery.py is about affinity."""

import logging
import re
from typing import Any

import pytest

from knft.config import Config
from knft.decide.frontends import FrontendClaims
from knft.errors import KernelError
from knft.families import Family
from knft.render import wide
from knft.sync.invalidation import Invalidation
from tests.support.kernel_harness import (
    KernelHarness,
    contents_of_fresh_start,
    element_operations,
    harness_with_service,
    restarted,
    service,
    slices,
    sorted_words,
)
from tests.support.lab.namespace import Namespace
from tests.support.old_kernel import refuse_as_before_6_2

pytestmark = pytest.mark.kernel
EVERY_COMMIT = 1000


def test_refused_change_is_made_by_a_full_sync(namespace: Namespace) -> None:
    """The full sync is part of the same sync, and sends a delta from the table that was read back."""
    harness = harness_with_service(namespace)
    checked = harness.checked_tables[Family.IPV4]
    checked.refused_commits = 1
    harness.apply(service("late", 20), *slices("late", [15]))
    assert harness.sync()[Family.IPV4].is_full
    assert checked.reads == 2
    assert element_operations(harness.last_transaction()) < 8
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_no_change_is_lost_while_all_commits_are_refused(namespace: Namespace) -> None:
    """The next successful sync makes both changes and requests the conntrack cleanup."""
    harness = harness_with_service(namespace)
    checked = harness.checked_tables[Family.IPV4]
    checked.refused_commits = EVERY_COMMIT
    udp = [item | {"ports": [{"name": "http", "port": 53, "protocol": "UDP"}]} for item in slices("late", [15])]
    harness.apply(service("late", 20), *udp)
    with pytest.raises(KernelError, match="refused for the test"):
        harness.sync()
    checked.refused_commits = 0
    harness.apply(*slices("web", range(11, 15)))
    report = harness.sync()[Family.IPV4]
    assert report.conntrack_cleanup_required
    assert report.quarantined == {}
    assert contents_of_fresh_start(harness) == harness.listing().contents


@pytest.mark.parametrize("failure", ["misreported_commits", "crashes_after_commit"])
def test_address_returns_to_its_service_after_a_full_sync_of_uncertain_outcome(
    namespace: Namespace, failure: str
) -> None:
    """A full sync moves an address from one map to another; its commit is in force, but reported as failed.

    A random history found this: Service ports were then committed by bisection, relying on the table as it was before.
    The element of the Service that had lost the address was taken to be still there, and was not added later.
    """
    external = "203.0.113.4"
    harness = KernelHarness(namespace)
    harness.apply(service("loser", 30, externalIPs=[external]))
    harness.sync()
    before = harness.listing().contents
    checked, reads = harness.checked_tables[Family.IPV4], harness.checked_tables[Family.IPV4].reads
    # The partial commit is refused, then the read of the full sync; the commit after the second read is in force.
    checked.refused_commits = checked.refused_reads = 1
    setattr(checked, failure, 1)
    harness.apply(service("earlier", 31, externalIPs=[external]), *slices("earlier", [15]))
    report = harness.sync()[Family.IPV4]
    assert (report.quarantined, report.orphan_error, checked.reads - reads) == ({}, "", 3)
    assert (checked.refused_commits, checked.refused_reads, getattr(checked, failure)) == (0, 0, 0)
    assert contents_of_fresh_start(harness) == harness.listing().contents != before
    harness.delete("Service", "earlier")
    assert not harness.sync()[Family.IPV4].is_full
    assert harness.listing().contents == before


def test_bug_in_one_sync_stops_neither_daemon_nor_other_family(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    harness = harness_with_service(namespace)
    checked = harness.checked_tables[Family.IPV4]
    harness.apply(service("late", 20), *slices("late", [15]))
    commit, checked.commit = checked.commit, None  # type: ignore[assignment,method-assign]
    with caplog.at_level(logging.ERROR, "knft"):
        assert not harness.daemon.sync()
    assert [record.message for record in caplog.records] == ["IPv4: sync failed unexpectedly; please report this"]
    checked.commit = commit  # type: ignore[method-assign]
    assert harness.daemon.sync()
    assert ("cluster-ips", ("10.96.0.20",)) in harness.listing().contents.members


def test_bug_before_sync_loses_no_change(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Changes already taken from the trackers are part of the next sync."""
    harness = harness_with_service(namespace)
    harness.apply(service("late", 20), *slices("late", [15]))

    def failing(*_: object) -> None:
        monkeypatch.undo()
        msg = "bug for the test"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(FrontendClaims, "claim", failing)
    assert not harness.daemon.sync()
    assert "please report this" in caplog.text
    assert harness.daemon.sync()
    assert contents_of_fresh_start(harness) == harness.listing().contents


def test_failure_of_one_family_does_not_stop_the_other(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with its duration, the daemon will retry, and the other family's rules are in force."""
    harness = harness_with_service(namespace)
    harness.checked_tables[Family.IPV4].refused_commits = EVERY_COMMIT
    harness.apply(service("late", 20), *slices("late", [15]))
    with caplog.at_level(logging.DEBUG, "knft"):
        assert not harness.daemon.sync()
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["IPv4: sync failed: refused for the test"]
    assert re.search(r"^IPv4: the failed sync took \d+\.\d ms$", "\n".join(caplog.messages), re.MULTILINE)
    assert re.search(r"^IPv6: partial sync of 1 Service ports in \d+\.\d ms", "\n".join(caplog.messages), re.MULTILINE)
    assert ("cluster-ips", ("fd00:10:96::20",)) in harness.listing(Family.IPV6).contents.members
    assert ("cluster-ips", ("10.96.0.20",)) not in harness.listing().contents.members
    harness.checked_tables[Family.IPV4].refused_commits = 0
    assert harness.daemon.sync()
    assert ("cluster-ips", ("10.96.0.20",)) in harness.listing().contents.members


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("flush chain ip knft services", id="a static chain is flushed"),
        pytest.param("flush chain ip knft pool-tcp-3", id="a pool in use is flushed"),
        pytest.param("flush chain ip knft pool-tcp-9", id="an unused pool is flushed"),
        pytest.param("delete table ip knft", id="the table is deleted"),
        pytest.param("flush set ip knft cluster-ips", id="a set is flushed"),
        pytest.param("add chain ip knft filter-input { policy drop; }", id="a policy is changed"),
        pytest.param("add element ip knft service-cidrs { 10.97.0.1-10.97.0.9 }", id="a range is added to a set"),
        pytest.param(
            "flush chain ip knft services\ndelete map ip knft service-nodeports", id="a map and its rule are missing"
        ),
    ],
)
def test_restart_repairs_damage(namespace: Namespace, damage: str) -> None:
    harness = harness_with_service(namespace)
    before, text = harness.listing(), namespace.run(["nft", "list", "table", "ip", "knft"]).stdout
    namespace.run(["nft", "-f", "-"], stdin=damage)
    restarted(harness).sync()
    assert (before.rule_counts, before.contents) == (harness.listing().rule_counts, harness.listing().contents)
    assert sorted_words(text) == sorted_words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)


@pytest.mark.parametrize("name", ["service-nodeports", "no-endpoint-nodeports"])
def test_map_of_wrong_type_is_replaced_with_the_table(namespace: Namespace, name: str) -> None:
    harness = KernelHarness(namespace)
    harness.apply(service("web", sessionAffinity="ClientIP"), *slices("web", [12, 13]))
    harness.sync()
    before = sorted_words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)
    edit = f"flush chain ip knft services\nflush chain ip knft nodeport-endpoints-check\ndelete map ip knft {name}"
    edit += f"\nadd map ip knft {name} {{ type mark : verdict; }}"
    namespace.run(["nft", "-f", "-"], stdin=edit)
    harness.proxiers[Family.IPV4].invalidate(Invalidation(declarations=True))
    assert harness.sync()[Family.IPV4].quarantined == {}
    assert before == sorted_words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)


def test_changed_rules_of_any_chain_are_repaired(namespace: Namespace) -> None:
    harness = harness_with_service(namespace)
    before = sorted_words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)
    chains = ("reject-chain", "pool-tcp-1", "external-nodeport-pool-tcp-3")
    edits = [f"flush chain ip knft {chain}\nadd rule ip knft {chain} accept" for chain in chains]
    namespace.run(["nft", "-f", "-"], stdin="\n".join(edits))
    harness.proxiers[Family.IPV4].invalidate(Invalidation())
    harness.sync()
    assert before == sorted_words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)


def test_emptied_chain_is_deleted_a_while_after_restart(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous process may just have emptied it, and kernels before 6.2 would refuse its deletion."""
    monkeypatch.setattr(wide, "COPIES_FACTOR", 0)
    now = 100.0
    harness = KernelHarness(namespace, clock=lambda: now)
    for table in harness.checked_tables.values():
        table.on_commit = refuse_as_before_6_2
    for node_port in (30080, 0):
        harness.apply(service("web", node_port=node_port), *slices("web", [11, 12]))
        report = harness.sync()[Family.IPV4]
    assert report.next_sync_within is not None
    second = KernelHarness(namespace, clock=lambda: now)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    again_within = second.sync()[Family.IPV4].next_sync_within
    assert second.last_transaction().is_empty
    assert again_within is not None
    now += again_within
    assert second.sync()[Family.IPV4].next_sync_within is None
    (dropped,) = second.last_transaction().deleted_chains
    assert dropped.endswith("-external")


def test_new_chains_are_sent_before_verdicts(namespace: Namespace) -> None:
    """Otherwise a packet processed during the commit could enter a chain without rules."""
    harness = KernelHarness(namespace)
    local: dict[str, Any] = {"externalTrafficPolicy": "Local"}
    harness.apply(service("web", node_port=30080, **local), *slices("web", [11], local=[11]))
    harness.sync()
    checked = harness.checked_tables[Family.IPV4]
    for step, numbers in enumerate(([11, 12], range(11, 90), range(11, 30))):
        checked.transactions.clear()
        here = [11, 12, 13][: step + 1]
        harness.apply(service("web", node_port=30080, **local), *slices("web", numbers, local=here))
        harness.apply(service("sticky", 20, sessionAffinity="ClientIP"), *slices("sticky", numbers))
        harness.sync()
        assert any(sent.new_chains for sent in checked.transactions)
        for sent in checked.transactions:
            assert not (sent.new_chains and (sent.added or sent.chains))


def test_invalidation_survives_failed_sync(namespace: Namespace) -> None:
    """The next successful sync rewrites rules that another program replaced."""
    harness = harness_with_service(namespace)
    before = sorted_words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)
    edit = "flush chain ip knft reject-chain\nadd rule ip knft reject-chain drop"
    namespace.run(["nft", "-f", "-"], stdin=edit)
    harness.proxiers[Family.IPV4].invalidate(Invalidation(declarations=True))
    checked = harness.checked_tables[Family.IPV4]
    checked.refused_reads = 1000
    with pytest.raises(KernelError):
        harness.sync()
    checked.refused_reads = 0
    harness.sync()
    assert before == sorted_words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)


def _marks(listing: str) -> set[str]:
    return {word for word in listing.split() if word.startswith("0x") and int(word, 16)}


def test_restart_rewrites_rules_of_all_chains(namespace: Namespace) -> None:
    """Including unused chains, which may be needed later."""
    harness = KernelHarness(namespace, Config("node-1", masquerade_bit=14))
    harness.apply(service("web", node_port=30080, externalTrafficPolicy="Local"), *slices("web", [11, 12], local=[11]))
    harness.apply(service("two", 20, node_port=30081), *slices("two", [13, 14, 15]))
    harness.sync()
    harness.delete("Service", "web")
    harness.delete("Service", "two")
    second = restarted(harness, Config("node-1", masquerade_bit=15))
    second.sync()
    assert _marks(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout) == {"0x00008000"}
    third = restarted(second, Config("node-1", masquerade_bit=15))
    third.apply(service("two", 20, node_port=30081), *slices("two", [13, 14, 15]))
    third.sync()
    assert _marks(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout) == {"0x00008000"}


@pytest.mark.parametrize("port", ["p", "p" * 15], ids=["one byte too long", "maximum length"])
def test_restart_sends_nothing_for_longest_names(namespace: Namespace, port: str) -> None:
    """knft and the kernel truncate their comments: namespace, name and port have 129 or 143 bytes."""
    long = service("a" * 63, sessionAffinity="ClientIP", externalIPs=["203.0.113.1"])
    long["metadata"]["namespace"] = "n" * 63
    long["spec"]["ports"][0]["name"] = port
    end = slices("a" * 63, [11, 12])
    for item in end:
        item["metadata"]["namespace"] = "n" * 63
        item["ports"][0]["name"] = port
    harness = KernelHarness(namespace)
    harness.apply(long, *end)
    harness.sync()
    assert {len(entry.comment) for entry in harness.listing().contents.entries.values()} == {128}
    second = restarted(harness)
    second.sync()
    for family in Family:
        assert second.last_transaction(family).is_empty, second.last_transaction(family)
