"""Damage and foreign objects: the audit counts them, a sync repairs them and reads the table back. In memory."""

from collections.abc import Callable, Sequence

import pytest
from msgspec import structs

from knft.errors import KernelError, UnavailableError
from knft.families import Family
from knft.nft.codec.listing import TableListing
from knft.nft.expressions import Drop, Goto, Jump, Rule
from knft.nft.objects import Chain, Container, Entry, Hook, NamedObject
from knft.nft.transaction import Transaction
from knft.render.names import RESET_PREFIX
from knft.sync.foreign_objects import unused_objects
from knft.sync.invalidation import Invalidation
from knft.sync.table_repair import RepairReport
from tests.support.kernel_harness import CONFIG, slices
from tests.support.memory_harness import MemoryHarness, synced_harness
from tests.support.memory_table import MemoryTable

DIFFERS = "table ip knft differs from the expected rules"
FOREIGN_SET = NamedObject("set", "their-set")


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a NodePort Service with a local endpoint, and a sticky Service."""
    return synced_harness()


def _add_foreign_objects(table: MemoryTable) -> frozenset[NamedObject]:
    drop, leaf = Chain("their-input", (Rule((Drop(),)),), Hook("filter", "input", 3)), Chain("their-leaf")
    table.chains |= {chain.name: chain for chain in (drop, leaf, Chain("their-chain", (Rule((Jump(leaf.name),)),)))}
    table.containers["their-set"] = Container("their-set", "inet_service")
    table.elements["their-set"] = {(80,): None}
    chains = (NamedObject("chain", name) for name in ("their-input", "their-leaf", "their-chain"))
    return frozenset({*chains, FOREIGN_SET})


def _refuse_the_set(objects: Sequence[NamedObject]) -> None:
    if FOREIGN_SET in objects:
        msg = "busy"
        raise KernelError(msg)


def test_foreign_objects_are_removed_and_reported(harness: MemoryHarness) -> None:
    added = _add_foreign_objects(harness.table)
    assert harness.proxier.audit(harness.table) == len(added)
    report = harness.sync()
    assert (report.repair.repaired, report.repair.removed, report.repair.error) == (True, added, "")
    assert (report.elements_removed, report.chains_written) == (0, 0)
    assert not harness.table.chains.keys() & {each.name for each in added}
    assert "their-set" not in harness.table.containers
    assert harness.differences() == []
    assert not harness.sync().is_full


def _counters_were_turned_off(harness: MemoryHarness) -> MemoryHarness:
    counting = harness.restarted(structs.replace(CONFIG, service_counters=True))
    assert counting.sync().repair == RepairReport()
    return counting.restarted(CONFIG)


def _found_counters() -> frozenset[NamedObject]:
    """Return the unused counters of a table in which no Service resets connections."""
    others = (RESET_PREFIX, "localhost-")
    return frozenset(each for each in unused_objects(Family.IPV4, CONFIG) if not each.name.startswith(others))


def test_removal_of_unused_counters_is_not_a_repair(harness: MemoryHarness) -> None:
    restarted = _counters_were_turned_off(harness)
    repair = restarted.sync().repair
    counters = _found_counters()
    assert repair == RepairReport(removed_unused=counters)
    assert {NamedObject("set", "service-connections"), NamedObject("chain", "dropped-nodeports")} < counters
    assert {each.name for each in counters}.isdisjoint({*restarted.table.containers, *restarted.table.chains})
    assert restarted.differences() == []
    assert restarted.sync().repair == RepairReport()


def test_removal_of_rejected_nodeports_is_not_a_repair(harness: MemoryHarness) -> None:
    """First TCP is served, too, and then the gate is off."""
    rejecting = harness.restarted(structs.replace(CONFIG, localhost_nodeports=True))
    assert rejecting.sync().repair == RepairReport()
    assert rejecting.table.elements["localhost-nodeport-reject-ports"]
    loopback = ("127.0.0.0/8",)
    serving = rejecting.restarted(structs.replace(CONFIG, localhost_nodeports=True, nodeport_addresses=loopback))
    tcp, *others = (NamedObject("chain", f"localhost-nodeport-reject-{each}") for each in ("tcp", "udp", "sctp"))
    assert serving.sync().repair == RepairReport(removed_unused=frozenset({tcp}))
    off = serving.restarted(CONFIG)
    ports = NamedObject("map", "localhost-nodeport-reject-ports")
    assert off.sync().repair == RepairReport(removed_unused=frozenset({ports, *others}))
    assert off.differences() == []


def test_foreign_objects_beside_unused_counters_are_a_repair(harness: MemoryHarness) -> None:
    """A base chain with the name of an unused chain is foreign: knft creates none."""
    restarted = _counters_were_turned_off(harness)
    added = _add_foreign_objects(restarted.table)
    hooked = Chain("dropped-services", (Rule((Drop(),)),), Hook("filter", "input", 3))
    restarted.table.chains[hooked.name] = hooked
    repair = restarted.sync().repair
    added |= {NamedObject("chain", hooked.name)}
    assert (repair.repaired, repair.removed, repair.error) == (True, added, "")
    assert repair.removed_unused == _found_counters() - added


@pytest.mark.parametrize("rules", [(), (Rule((Drop(),)),)], ids=["empty", "with rules"])
def test_marker_chain_of_another_version_is_foreign_if_it_has_rules(
    harness: MemoryHarness, rules: tuple[Rule, ...]
) -> None:
    """A marker is empty; a sync deletes those of other versions."""
    harness.table.chains["rules-0"] = Chain("rules-0", rules)
    harness.proxier.invalidate(Invalidation(declarations=True))
    report = harness.sync()
    assert report.repair.removed == (frozenset({NamedObject("chain", "rules-0")}) if rules else frozenset())
    assert "rules-0" not in harness.table.chains


def test_refused_deletion_of_a_foreign_object_is_retried(harness: MemoryHarness) -> None:
    _add_foreign_objects(harness.table)
    harness.table.on_delete = _refuse_the_set
    harness.proxier.invalidate(Invalidation(declarations=True))
    for delay in (30.0, 60.0):
        report = harness.sync()
        assert not report.repair.repaired
        assert report.repair.error == f"{DIFFERS}: foreign objects remain: set their-set (busy)"
        assert report.next_sync_within == delay
        harness.now += delay
    harness.table.stop_failing()
    report = harness.sync()
    assert (report.repair.repaired, report.repair.removed, report.repair.error) == (True, frozenset({FOREIGN_SET}), "")
    assert report.next_sync_within is None


def test_chain_that_another_one_jumps_to_is_deleted_alone(harness: MemoryHarness) -> None:
    """All foreign chains are emptied before the first is deleted."""
    caller = Chain("their-chain", (Rule((Jump("a-leaf"),)),))
    harness.table.chains |= {"a-leaf": Chain("a-leaf"), caller.name: caller}

    def refuse(objects: Sequence[NamedObject]) -> None:
        if len(objects) > 1:
            msg = "only one at a time"
            raise KernelError(msg)

    harness.table.on_delete = refuse
    harness.proxier.invalidate(Invalidation(declarations=True))
    assert harness.sync().repair.repaired
    assert not harness.table.chains.keys() & {"a-leaf", "their-chain"}


def test_every_reason_is_reported(harness: MemoryHarness) -> None:
    _add_foreign_objects(harness.table)
    harness.table.elements["cluster-ips"].clear()
    harness.table.on_delete = _refuse_the_set
    harness.table.after_commit = lambda _: harness.table.elements["cluster-ips"].clear()
    harness.proxier.invalidate(Invalidation(declarations=True))
    assert harness.sync().repair.error == (
        f"{DIFFERS}: 2 elements or chains; foreign objects remain: set their-set (busy)"
    )


def test_table_that_is_gone_after_a_repair_is_reported(harness: MemoryHarness) -> None:
    def remove(_: Transaction) -> None:
        harness.table.exists = False

    harness.table.elements["cluster-ips"].clear()
    harness.table.after_commit = remove
    harness.proxier.invalidate(Invalidation(declarations=True))
    report = harness.sync()
    assert not report.repair.repaired
    assert report.repair.error.startswith(DIFFERS)


def test_audit_compares_nothing_after_a_failed_sync(harness: MemoryHarness) -> None:
    harness.table.on_commit = lambda _: _raise(KernelError("refused"))
    harness.table.on_replace = lambda _: _raise(KernelError("refused"))
    harness.apply(*slices("web", [11, 99]))
    with pytest.raises(KernelError):
        harness.sync()
    assert harness.proxier.audit(harness.table) is None


def test_base_chain_that_cannot_be_deleted_goes_with_the_table(harness: MemoryHarness) -> None:
    added = _add_foreign_objects(harness.table)
    harness.table.on_delete = lambda _: _raise(KernelError("busy"))
    harness.proxier.invalidate(Invalidation(declarations=True))
    report = harness.sync()
    assert harness.table.replacements == 1
    assert (report.repair.repaired, report.repair.removed) == (True, added)
    assert harness.differences() == []


def test_chain_that_cannot_be_emptied_is_reported(harness: MemoryHarness) -> None:
    _add_foreign_objects(harness.table)

    def refuse(objects: Sequence[NamedObject]) -> None:
        if NamedObject("chain", "their-input") not in objects:
            msg = "in use" if objects else "cannot be emptied"
            raise KernelError(msg)

    harness.table.on_delete = refuse
    harness.proxier.invalidate(Invalidation(declarations=True))
    assert harness.sync().repair.error == (
        f"{DIFFERS}: foreign objects remain: chain their-chain, chain their-leaf, set their-set (in use)"
    )


@pytest.mark.parametrize("is_complete", [True, False])
def test_foreign_base_chains_go_first_unless_own_ones_are_damaged(harness: MemoryHarness, *, is_complete: bool) -> None:
    """They may be those of another version of knft, which serve the traffic until this version's do."""
    _add_foreign_objects(harness.table)
    if not is_complete:
        chain = harness.table.chains["nat-prerouting"]
        harness.table.chains["nat-prerouting"] = structs.replace(chain, rules=())
    requests: list[str] = []
    harness.table.on_commit = lambda transaction: None if transaction.is_empty else requests.append("commit")
    harness.table.on_delete = lambda objects: requests.extend(each.name for each in objects)
    harness.apply(*slices("web", [11, 13]))
    harness.proxier.invalidate(Invalidation(declarations=True))
    assert harness.sync().repair.repaired
    first = next(name for name in requests if name in ("commit", "their-input"))
    assert first == ("their-input" if is_complete else "commit")
    assert requests.count("their-input") == 1
    assert requests[-1] != "commit"


def test_foreign_chain_stays_while_a_found_element_leads_to_it(harness: MemoryHarness) -> None:
    """Another version of knft made both; while removals are held, the element stays and serves traffic."""
    harness.table.chains["their-chain"] = Chain("their-chain", (Rule((Drop(),)),))
    harness.table.elements["service-ips"]["10.96.0.99", "tcp", 80] = Entry(Goto("their-chain"))
    second = harness.restarted()
    second.proxier.hold_removals()
    deleted: list[NamedObject] = []
    harness.table.on_delete = deleted.extend
    assert second.sync().repair.error == f"{DIFFERS}: foreign objects remain: chain their-chain"
    assert deleted == []
    second.proxier.release_removals()
    assert second.sync().repair.repaired
    assert deleted == [NamedObject("chain", "their-chain")]
    assert second.differences() == []


def test_repair_is_verified_by_the_next_sync_if_the_table_changes_meanwhile(harness: MemoryHarness) -> None:
    _add_foreign_objects(harness.table)
    harness.proxier.invalidate(Invalidation(declarations=True))
    harness.table.on_delete = lambda _: harness.proxier.plan_check()
    reads = harness.table.reads
    report = harness.sync()
    assert (report.repair.repaired, report.repair.error, harness.table.reads) == (False, "", reads + 1)
    harness.table.stop_failing()
    harness.proxier.invalidate(Invalidation(declarations=True))
    assert harness.sync().repair.repaired


def test_table_is_read_back_only_after_a_repair(harness: MemoryHarness) -> None:
    harness.table.elements["cluster-ips"].clear()
    counts = []
    for declarations in (True, True, False):
        reads = harness.table.reads
        harness.proxier.invalidate(Invalidation(declarations=declarations))
        harness.sync()
        counts.append(harness.table.reads - reads)
    assert counts == [2, 1, 1]


def test_change_just_before_the_verification_is_not_a_failed_repair(harness: MemoryHarness) -> None:
    """The next sync repairs it, and verifies."""
    reads = harness.table.reads

    def change() -> None:
        if harness.table.reads == reads + 2:
            harness.table.elements["cluster-ips"].clear()
            harness.proxier.plan_check()

    harness.table.elements["cluster-ips"].clear()
    harness.table.on_read = change
    harness.proxier.invalidate(Invalidation(declarations=True))
    report = harness.sync()
    assert (report.repair.repaired, report.repair.error, report.next_sync_within) == (False, "", None)
    harness.proxier.invalidate(Invalidation(declarations=True))
    assert harness.sync().repair == RepairReport(repaired=True)


@pytest.mark.parametrize("deleted", [True, False])
def test_table_that_crashes_the_library_is_read_without_newer_sets(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch, *, deleted: bool
) -> None:
    """libnftables 1.0.6 dies of sets that a newer program has declared."""
    errors: list[Exception] = [UnavailableError("died"), UnavailableError("died")]
    harness.table.on_read = lambda: _raise(errors.pop()) if errors else None
    monkeypatch.setattr(harness.table, "delete_newer_sets", lambda _: deleted)
    harness.proxier.invalidate(Invalidation())
    if deleted:
        harness.sync()
        assert harness.differences() == []
    else:
        with pytest.raises(UnavailableError):
            harness.sync()


def test_change_during_the_verification_is_reported(harness: MemoryHarness) -> None:
    """Another program removes an element again and again."""

    def remove(_: Transaction) -> None:
        harness.table.elements["cluster-ips"].pop(("10.96.0.10",), None)

    harness.table.after_commit = remove
    remove(harness.last_transaction)
    harness.proxier.invalidate(Invalidation(declarations=True))
    report = harness.sync()
    assert (report.repair.repaired, report.repair.error) == (False, f"{DIFFERS}: 1 elements or chains")
    harness.table.stop_failing()
    harness.now += 30.0
    assert harness.sync().repair == RepairReport(repaired=True)


@pytest.mark.parametrize(
    ("damage", "count"),
    [
        (lambda table: table.elements["cluster-ips"].clear(), 2),
        (lambda table: table.elements["service-ips"].update({("10.96.0.99", "tcp", 80): Entry(Drop())}), 1),
        (lambda table: table.elements["service-nodeports"].update({("tcp", 30080): Entry(Drop())}), 1),
        (lambda table: table.chains.update({"services": Chain("services")}), 1),
        (lambda table: table.chains.update({"pool-tcp-3": Chain("pool-tcp-3", (Rule((Drop(),)),))}), 1),
        (lambda table: [table.chains.update({name: Chain(name)}) for name in table.chains if "affinity" in name], 2),
        (lambda table: setattr(table, "exists", False), 1),
    ],
)
def test_audit_counts_differences_and_the_next_sync_repairs_them(
    harness: MemoryHarness, damage: Callable[[MemoryTable], object], count: int
) -> None:
    before = harness.table.listing()
    damage(harness.table)
    assert harness.proxier.audit(harness.table) == count
    if not harness.table.exists:
        harness.table.elements, harness.table.chains = {}, {}
    report = harness.sync()
    assert report.repair == RepairReport(repaired=True)
    after = harness.table.listing()
    assert (before.contents, before.rule_digests, before.hooks) == (after.contents, after.rule_digests, after.hooks)
    assert harness.proxier.audit(harness.table) == 0


def test_audit_ignores_what_a_sync_changes_meanwhile(harness: MemoryHarness) -> None:
    class Slow(MemoryTable):
        """Another connection to the same table; a sync commits after it was listed."""

        def read(self) -> TableListing:
            found = harness.table.listing()
            for name, numbers in (("web", [13, 14]), ("sticky", [22, 23])):
                harness.apply(*slices(name, numbers))
                harness.sync()
            return found

    assert harness.proxier.audit(Slow(Family.IPV4)) == 0
    del harness.table.elements["cluster-ips"]["10.96.0.10",]
    assert harness.proxier.audit(Slow(Family.IPV4)) == 1


def test_audit_does_not_report_rules_that_knft_wrote_and_finds_again(harness: MemoryHarness) -> None:
    """This libnftables lists them in another way than knft knows; writing them again would not end."""

    def write_otherwise(_: Transaction) -> None:
        harness.table.chains["services"] = Chain("services", (Rule((Drop(),)),))

    harness.table.after_commit = write_otherwise
    write_otherwise(harness.last_transaction)
    assert harness.proxier.audit(harness.table) == 1
    assert harness.proxier.audit(harness.table) == 0
    harness.sync()
    assert harness.proxier.audit(harness.table) == 0


def _raise(error: Exception) -> None:
    raise error
