"""The Proxier on a table in memory: what it sends, and what it knows after requests that failed."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.families import Family
from knft.nft.codec.listing import TableListing
from knft.nft.expressions import Drop, Jump, Rule
from knft.nft.objects import Chain, Container, Entry, Hook, NamedObject
from knft.nft.transaction import Transaction
from knft.render import wide
from knft.render.names import HAIRPIN
from knft.sync.invalidation import Invalidation
from knft.sync.table_repair import RepairReport
from tests.support.kernel_harness import service, slices
from tests.support.kube_objects import port_name
from tests.support.memory_table import MemoryTable
from tests.sync.memory_harness import MemoryHarness
from tests.sync.memory_history import MemoryHistory


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a NodePort Service with a local endpoint, and a sticky Service."""
    harness = MemoryHarness()
    harness.apply(
        service("web", node_port=30080),
        *slices("web", [11, 12, 13], local=[12]),
        service("sticky", 30, sessionAffinity="ClientIP"),
        *slices("sticky", [21, 22], local=[21]),
    )
    harness.sync()
    return harness


@settings(max_examples=6, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False, note_method_calls=False), factor=st.sampled_from((1, wide.COPIES_FACTOR)))
def test_any_history_ends_with_the_table_of_a_fresh_start(rng: Random, factor: int) -> None:
    """With a factor of 1, small Services become wide, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide, "COPIES_FACTOR", factor)
        MemoryHistory(rng).run(60)


def test_bug_after_the_main_phase_makes_the_next_sync_a_full_one(harness: MemoryHarness) -> None:
    """The writer has recorded a removal that was not made."""

    def fail(transaction: Transaction) -> None:
        if HAIRPIN in transaction.removed:
            msg = "a bug, for the test"
            raise ZeroDivisionError(msg)

    harness.table.on_commit = fail
    harness.apply(*slices("web", [11, 13]))
    with pytest.raises(ZeroDivisionError):
        harness.sync()
    harness.table.stop_failing()
    assert harness.sync().is_full
    assert harness.differences() == []


def test_refused_partial_sync_becomes_a_full_one(harness: MemoryHarness) -> None:
    reads, refusals = harness.table.reads, [KernelError("refused")]

    def refuse_once(_: Transaction) -> None:
        if refusals:
            raise refusals.pop()

    harness.table.on_commit = refuse_once
    harness.apply(*slices("web", [11, 13]))
    report = harness.sync()
    assert report.is_full
    assert (report.quarantined, report.orphan_error) == ({}, "")
    assert harness.table.reads == reads + 1
    assert harness.differences() == []


def _refuse(address: str, table: MemoryTable) -> None:
    """Let the table refuse all transactions about a frontend's address."""

    def refuse(transaction: Transaction) -> None:
        keys = [key for removed in transaction.removed.values() for key in removed]
        if any(address in key for key in (*keys, *(key for added in transaction.added.values() for key in added))):
            msg = f"{address} refused"
            raise KernelError(msg)

    table.on_commit = refuse


def _frontends(harness: MemoryHarness) -> set[object]:
    return {key[0] for key in harness.table.elements["service-ips"]}


WEB = port_name()


@pytest.mark.parametrize("restarted", [False, True])
def test_refused_service_port_keeps_its_contents_and_the_others_change(
    harness: MemoryHarness, *, restarted: bool
) -> None:
    before = {name: dict(found) for name, found in harness.table.elements.items()}
    if restarted:
        harness = harness.restarted()
    harness.apply(service("new", 40), *slices("new", [41]), *slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    report = harness.sync()
    assert report.quarantined == {WEB: "10.96.0.10 refused"}
    assert report.orphan_error == ""
    after = harness.table.elements
    assert _frontends(harness) == {"10.96.0.10", "10.96.0.30", "10.96.0.40"}
    kept = [(name, key) for name, found in before.items() for key in found if "10.96.0.10" in key or 30080 in key]
    assert len(kept) > 6
    assert [after[name][key] for name, key in kept] == [before[name][key] for name, key in kept]
    local = ("10.244.2.12", "10.244.2.12", "tcp", 8080)
    assert local in after[HAIRPIN]
    assert harness.proxier.audit(harness.table) == 0


def test_quarantined_service_port_is_retried_with_growing_delays(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    for delay in (30.0, 60.0, 120.0):
        assert harness.sync().next_sync_within == delay
        harness.now += delay - 1
        assert not harness.sync().is_full
        harness.now += 1
    harness.table.stop_failing()
    report = harness.sync()
    assert (report.quarantined, report.next_sync_within) == ({}, None)
    assert harness.differences() == []


def test_changed_service_port_is_retried_after_the_first_delay(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    for delay in (30.0, 60.0):
        assert harness.sync().next_sync_within == delay
        harness.now += delay
    harness.sync()
    harness.table.stop_failing()
    harness.now += 29.0
    harness.apply(*slices("web", [11, 98]))
    assert harness.sync().next_sync_within == 1.0
    harness.now += 1.0
    assert harness.sync().quarantined == {}
    assert harness.differences() == []


def test_deleted_service_port_leaves_quarantine(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 99]))
    _refuse("10.96.0.10", harness.table)
    harness.sync()
    harness.table.stop_failing()
    harness.delete("Service", "web")
    report = harness.sync()
    assert report.is_full
    assert report.quarantined == {}
    assert harness.differences() == []


def test_refused_removal_of_orphans_is_retried(harness: MemoryHarness) -> None:
    """The elements of a deleted Service stay in the table until the kernel accepts their removal."""
    _refuse("10.96.0.10", harness.table)
    harness.delete("Service", "web")
    for delay in (30.0, 60.0):
        report = harness.sync()
        assert report.quarantined == {}
        assert (report.orphan_error, report.next_sync_within) == ("10.96.0.10 refused", delay)
        assert report.refused_removals == 1
        assert "10.96.0.10" in _frontends(harness)
        assert harness.proxier.audit(harness.table)
        harness.now += delay
    harness.table.stop_failing()
    report = harness.sync()
    assert (report.orphan_error, report.next_sync_within, report.refused_removals) == ("", None, 0)
    assert harness.differences() == []


@pytest.mark.parametrize("missing", ["web", "sticky"])
def test_held_removals_are_made_after_the_release(harness: MemoryHarness, missing: str) -> None:
    """While not all objects are known, a restarted process keeps what it finds, also without the endpoints."""
    before = {name: dict(found) for name, found in harness.table.elements.items()}
    second = MemoryHarness(harness.table)
    second.proxier.hold_removals()
    for (kind, name), item in harness.objects.items():
        if not name.startswith(missing) or kind == "Service":
            second.change(kind, name, item)
    second.sync()
    found = second.table.elements
    assert all(found[name].keys() >= elements.keys() for name, elements in before.items())
    assert second.proxier.audit(second.table) == 0
    second.proxier.release_removals()
    assert second.sync().is_full
    assert second.differences() == []


def _with_other_hook(table: MemoryTable) -> None:
    """Change the hook of a base chain, as another version of knft may have it."""
    chain = table.chains["filter-input"]
    table.chains["filter-input"] = structs.replace(chain, hook=Hook("filter", "input", 7))


def test_table_with_another_hook_is_replaced_at_once(harness: MemoryHarness) -> None:
    _with_other_hook(harness.table)
    second = harness.restarted()
    assert second.sync().is_full
    assert harness.table.replacements == 1
    assert second.differences() == []
    assert second.proxier.audit(second.table) == 0


def test_table_with_another_hook_stays_while_removals_are_held(harness: MemoryHarness) -> None:
    _with_other_hook(harness.table)
    second = MemoryHarness(harness.table)
    second.proxier.hold_removals()
    with pytest.raises(UnavailableError) as raised:
        second.sync()
    assert str(raised.value) == (
        "another version of knft created the table, and replacing it would remove rules of Services whose manifests "
        "cannot be read; the table stays as it is until every manifest was read without error"
    )
    assert harness.table.replacements == 0
    second.proxier.release_removals()
    second.sync()
    assert harness.table.replacements == 1


def test_table_damaged_while_removals_are_held_is_replaced(harness: MemoryHarness) -> None:
    """This process has adopted the table before, so its layout was right."""
    second = harness.restarted()
    second.proxier.hold_removals()
    second.sync()
    _with_other_hook(harness.table)
    second.proxier.invalidate(Invalidation(declarations=True))
    second.sync()
    assert harness.table.replacements == 1
    assert second.differences() == []


def _add_foreign_objects(table: MemoryTable) -> frozenset[NamedObject]:
    drop, leaf = Chain("their-input", (Rule((Drop(),)),), Hook("filter", "input", 3)), Chain("their-leaf")
    table.chains |= {chain.name: chain for chain in (drop, leaf, Chain("their-chain", (Rule((Jump(leaf.name),)),)))}
    table.containers["their-set"] = Container("their-set", "inet_service")
    chains = (NamedObject("chain", name) for name in ("their-input", "their-leaf", "their-chain"))
    return frozenset({*chains, NamedObject("set", "their-set")})


def test_foreign_objects_are_removed_and_reported(harness: MemoryHarness) -> None:
    added = _add_foreign_objects(harness.table)
    assert harness.proxier.audit(harness.table) == len(added)
    report = harness.sync()
    assert (report.repair.repaired, report.repair.removed, report.repair.error) == (True, added, "")
    assert not harness.table.chains.keys() & {each.name for each in added}
    assert "their-set" not in harness.table.containers
    assert harness.differences() == []
    assert not harness.sync().is_full


def test_refused_deletion_of_a_foreign_object_is_retried(harness: MemoryHarness) -> None:
    _add_foreign_objects(harness.table)
    refused = NamedObject("set", "their-set")

    def refuse(objects: Sequence[NamedObject]) -> None:
        if refused in objects:
            msg = "busy"
            raise KernelError(msg)

    harness.table.on_delete = refuse
    harness.proxier.invalidate(Invalidation(declarations=True))
    for delay in (30.0, 60.0):
        report = harness.sync()
        assert not report.repair.repaired
        assert report.repair.error == "foreign objects remain: set their-set (busy)"
        assert report.next_sync_within == delay
        harness.now += delay
    harness.table.stop_failing()
    report = harness.sync()
    assert (report.repair.repaired, report.repair.removed, report.repair.error) == (True, frozenset({refused}), "")
    assert report.next_sync_within is None


def test_base_chain_that_cannot_be_deleted_goes_with_the_table(harness: MemoryHarness) -> None:
    added = _add_foreign_objects(harness.table)
    harness.table.on_delete = lambda _: _raise(KernelError("busy"))
    harness.proxier.invalidate(Invalidation(declarations=True))
    report = harness.sync()
    assert harness.table.replacements == 1
    assert (report.repair.repaired, report.repair.removed) == (True, added)
    assert harness.differences() == []


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


def test_elements_whose_deferred_removal_is_refused_become_orphans(harness: MemoryHarness) -> None:
    """A packet in flight may still look up the endpoints of the former layout, so they are removed last."""
    addresses = [f"198.51.100.{number}" for number in range(1, 40)]
    harness.apply(*slices("web", range(101, 131), local=[107]))
    harness.sync()
    prefixes = {("10.96.0.10", 80), *((address, 80) for address in addresses)}

    def refuse(transaction: Transaction) -> None:
        if any(key[:-1] in prefixes for key in transaction.removed.get("endpoints-tcp", ())):
            msg = "busy"
            raise KernelError(msg)

    harness.table.on_commit = refuse
    harness.apply(service("web", node_port=30080, externalIPs=addresses))
    report = harness.sync()
    assert (report.quarantined, report.orphan_error) == ({}, "busy")
    assert ("10.96.0.10", 80, 0) in harness.table.elements["endpoints-tcp"]
    assert harness.proxier.audit(harness.table)
    harness.table.stop_failing()
    assert report.next_sync_within is not None
    harness.now += report.next_sync_within
    assert harness.sync().orphan_error == ""
    assert harness.differences() == []


@pytest.mark.parametrize(
    ("damage", "count"),
    [
        (lambda table: table.elements["cluster-ips"].clear(), 2),
        (lambda table: table.elements["service-ips"].update({("10.96.0.99", "tcp", 80): Entry(Drop())}), 1),
        (lambda table: table.elements["service-nodeports"].update({("tcp", 30080): Entry(Drop())}), 1),
        (lambda table: table.chains.update({"services": Chain("services")}), 1),
        (lambda table: table.chains.update({"pool-tcp-3": Chain("pool-tcp-3", (Rule((Drop(),)),))}), 1),
        (lambda table: [table.chains.update({name: Chain(name)}) for name in table.chains if "sticky" in name], 2),
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
            harness.apply(*slices("web", [13, 14]))
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


def test_change_during_the_verification_is_reported(harness: MemoryHarness) -> None:
    """Another program removes an element again and again."""

    def remove(_: Transaction) -> None:
        harness.table.elements["cluster-ips"].pop(("10.96.0.10",), None)

    harness.table.after_commit = remove
    remove(harness.last_transaction)
    harness.proxier.invalidate(Invalidation(declarations=True))
    report = harness.sync()
    assert (report.repair.repaired, report.repair.error) == (False, "1 elements or chains differ")
    harness.table.stop_failing()
    harness.now += 30.0
    assert harness.sync().repair == RepairReport(repaired=True)


def test_restart_sends_nothing(harness: MemoryHarness) -> None:
    addresses = [f"198.51.100.{number}" for number in range(1, 40)]
    harness.apply(service("wide", 50, externalIPs=addresses), *slices("wide", range(101, 131)))
    harness.apply(_node("192.0.2.11"))
    harness.sync()
    second = harness.restarted()
    report = second.sync()
    assert (report.is_full, report.elements_added, report.elements_removed, report.chains_written) == (True, 0, 0, 0)
    assert second.last_transaction.is_empty
    assert second.differences() == []


def _node(address: str) -> dict[str, Any]:
    listed = [{"type": "InternalIP", "address": address}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": listed}}


def test_held_removals_keep_the_addresses_of_an_unknown_node(harness: MemoryHarness) -> None:
    harness.apply(_node("192.0.2.11"))
    harness.sync()
    second = MemoryHarness(harness.table)
    second.proxier.hold_removals()
    found = []
    for _ in range(2):
        second.proxier.invalidate(Invalidation())
        second.sync()
        found.append(set(harness.table.elements["nodeport-ips"]))
    second.apply(_node("192.0.2.12"))
    second.sync()
    found.append(set(harness.table.elements["nodeport-ips"]))
    assert found == [{("192.0.2.11",)}, {("192.0.2.11",)}, {("192.0.2.12",)}]


def test_table_is_replaced_if_nothing_can_be_committed(harness: MemoryHarness) -> None:
    """A foreign change that only replacing the table repairs; no Service port causes it."""
    harness.apply(*slices("web", [11, 13]))
    harness.table.on_commit = lambda _: _raise(KernelError("refused"))
    report = harness.sync()
    assert harness.table.replacements == 1
    assert report.quarantined == {}
    assert harness.differences() == []


def test_refusal_is_raised_if_the_table_cannot_be_replaced_either(harness: MemoryHarness) -> None:
    harness.apply(*slices("web", [11, 13]))
    harness.table.on_commit = lambda _: _raise(KernelError("refused"))
    harness.table.on_replace = lambda _: _raise(KernelError("refused, too"))
    with pytest.raises(KernelError, match=r"^refused$"):
        harness.sync()
    harness.table.stop_failing()
    assert harness.sync().is_full
    assert harness.differences() == []


@pytest.mark.parametrize("error", [LibraryDiedError("died"), UnavailableError("timeout")])
def test_removal_of_orphans_may_have_happened_if_the_library_died(
    harness: MemoryHarness, error: UnavailableError
) -> None:
    """Another error than a crash does not depend on the request, so the sync fails."""
    _refuse("10.96.0.10", harness.table)
    harness.delete("Service", "web")
    assert harness.sync().orphan_error
    harness.now += 30.0
    commits = []

    def fail(transaction: Transaction) -> None:
        commits.append(transaction)
        if "service-ips" in transaction.removed:
            raise error

    harness.table.on_commit = fail
    checks = harness.table.checks
    if isinstance(error, LibraryDiedError):
        report = harness.sync()
        assert (report.orphan_error, report.refused_removals) == ("died", 1)
        assert harness.table.checks > checks
        assert harness.sync().is_full
    else:
        with pytest.raises(UnavailableError):
            harness.sync()
    harness.table.stop_failing()
    assert harness.sync().is_full
    harness.now += 3600.0
    assert harness.sync().orphan_error == ""
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
        "foreign objects remain: chain their-chain, chain their-leaf, set their-set (in use)"
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
    assert requests[-1] != "commit"


def _raise(error: Exception) -> None:
    raise error
