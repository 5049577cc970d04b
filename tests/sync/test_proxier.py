"""The Proxier with a table in memory: its transactions, and its recorded state after a failed request."""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from knft.errors import KernelError, LibraryDiedError, UnavailableError
from knft.model.names import ServicePortName
from knft.model.plan import ServicePlan
from knft.nft.objects import Hook
from knft.nft.transaction import Transaction
from knft.render import wide
from knft.render.fragment import Fragment, render_plan
from knft.render.names import HAIRPIN
from knft.sync.invalidation import Invalidation
from knft.sync.prepare import PreparedTransaction
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness, synced_harness
from tests.support.memory_table import MemoryTable
from tests.sync.memory_history import MemoryHistory


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a NodePort Service with a local endpoint, and a sticky Service."""
    return synced_harness()


@settings(max_examples=6, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    rng=st.randoms(use_true_random=False, note_method_calls=False),
    factor=st.sampled_from((1, wide.COPIES_FACTOR)),
)
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


def test_library_is_checked_after_it_died(harness: MemoryHarness) -> None:
    checks = harness.table.checks
    harness.table.on_read = lambda: _raise(LibraryDiedError("died"))
    harness.proxier.invalidate(Invalidation())
    with pytest.raises(LibraryDiedError):
        harness.sync()
    assert harness.table.checks == checks + 1


def test_failed_sync_does_not_forget_that_declarations_may_have_changed(harness: MemoryHarness) -> None:
    found = harness.table.containers["cluster-ips"]
    harness.table.containers["cluster-ips"] = structs.replace(found, comment="of another program")
    harness.proxier.invalidate(Invalidation(declarations=True))
    harness.table.on_read = lambda: _raise(KernelError("busy"))
    with pytest.raises(KernelError):
        harness.sync()
    harness.table.stop_failing()
    declarations = harness.table.declarations
    harness.sync()
    assert harness.table.declarations == declarations + 1


@pytest.mark.parametrize("missing", ["web", "sticky"])
def test_held_removals_are_made_after_the_release(harness: MemoryHarness, missing: str) -> None:
    """While removals are held, a restarted process keeps the rules in the kernel, also without EndpointSlices."""
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


def test_table_with_another_type_of_set_is_replaced_at_once(harness: MemoryHarness) -> None:
    """As another version of knft may have it."""
    found = harness.table.containers["cluster-ips"]
    harness.table.containers["cluster-ips"] = structs.replace(found, key="inet_service")
    harness.table.elements["cluster-ips"] = {}
    second = harness.restarted()
    assert second.sync().is_full
    assert harness.table.replacements == 1
    assert second.differences() == []


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


def test_table_with_another_type_of_map_stays_while_removals_are_held(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table was read as right, but the kernel refuses the declarations."""
    second = harness.restarted()
    second.proxier.hold_removals()
    del harness.table.containers["cluster-ips"]
    with monkeypatch.context() as patch:
        patch.setattr(harness.table, "declare", lambda _: _raise(KernelError("File exists")))
        with pytest.raises(UnavailableError, match="another version of knft created the table"):
            second.sync()
    assert harness.table.replacements == 0
    second.sync()
    assert second.differences() == []


def test_endpoints_of_a_large_sync_are_sent_in_pieces(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knft.sync.table_writer.MAX_ELEMENTS", 4)
    before = len(harness.table.transactions)
    harness.apply(service("other", 70), *slices("other", range(71, 81)))
    assert not harness.sync().is_full
    added = [len(each.added.get("endpoints-tcp", {})) for each in harness.table.transactions[before:]]
    assert (max(added), sum(added), added[-1]) == (4, 10, 0)
    assert harness.differences() == []


def test_endpoints_of_a_refused_service_port_go_with_it(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were sent before the transaction that the kernel refused; nothing leads to them."""
    monkeypatch.setattr("knft.sync.table_writer.MAX_ELEMENTS", 4)
    refused = ("10.96.0.70", "tcp", 80)

    def refuse(transaction: Transaction) -> None:
        if refused in transaction.added.get("service-ips", {}):
            msg = "refused"
            raise KernelError(msg)

    harness.table.on_commit = refuse
    harness.apply(service("other", 70), *slices("other", range(71, 81)))
    before = len(harness.table.transactions)
    assert len(harness.sync().quarantined) == 1
    harness.delete("Service", "other")
    harness.sync()
    sent = [key[0] for each in harness.table.transactions[before:] for key in each.added.get("endpoints-tcp", {})]
    assert "10.96.0.70" in sent
    assert "10.96.0.70" not in {key[0] for key in harness.table.elements["endpoints-tcp"]}


def test_first_sync_reports_no_refused_removal() -> None:
    assert MemoryHarness().sync().refused_removals == 0


def test_large_first_sync_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sets and maps are declared first, then come chains and endpoints, and last the verdicts."""
    for module in ("prepare", "table_writer"):
        monkeypatch.setattr(f"knft.sync.{module}.MAX_ELEMENTS", 4)
    harness = synced_harness()
    sent = harness.table.transactions
    assert harness.table.reads == 1
    assert sent[0].new_chains
    assert len(sent) > 3
    assert [bool(each.added.get("service-ips")) for each in sent] == [False] * (len(sent) - 1) + [True]
    assert harness.differences() == []


def test_unchanged_service_ports_are_claimed_at_a_restart(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rendered contents are not all in memory together."""
    second, prepared = harness.restarted(), list[PreparedTransaction]()
    second.apply(service("other", 70), *slices("other", [71]))
    commit = second.proxier._writer.commit

    def record(*arguments: Any) -> tuple[PreparedTransaction, float]:
        committed = commit(*arguments)
        prepared.append(committed[0])
        return committed

    monkeypatch.setattr(second.proxier._writer, "commit", record)
    second.sync()
    (only,) = prepared
    assert only.claimed_count == 2
    assert {owner.name for owner in only.desired if isinstance(owner, ServicePortName)} == {"other"}
    second.apply(*slices("web", [11, 14]))
    assert not second.sync().is_full
    assert second.differences() == []


@pytest.mark.parametrize("is_full", [False, True])
def test_number_of_a_wide_service_port_is_released(harness: MemoryHarness, *, is_full: bool) -> None:
    writer, addresses = harness.proxier._writer, [f"198.51.100.{number}" for number in range(1, 40)]
    harness.apply(service("wide", 50, externalIPs=addresses), *slices("wide", range(101, 131)))
    harness.sync()
    assert len(writer.wide) == 1
    harness.delete("Service", "wide")
    if is_full:
        harness.proxier.invalidate(Invalidation())
    harness.sync()
    assert writer.wide == {}


def test_sync_without_changes_is_partial_while_removals_are_held(harness: MemoryHarness) -> None:
    second = harness.restarted()
    second.proxier.hold_removals()
    assert second.sync().is_full
    assert not second.sync().is_full


def test_service_port_that_cannot_be_rendered_is_quarantined(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug; the other Service ports change."""

    def render(plan: ServicePlan, *arguments: Any) -> Fragment | None:
        if plan.name.name == "web":
            msg = "a bug, for the test"
            raise ZeroDivisionError(msg)
        return render_plan(plan, *arguments)

    monkeypatch.setattr("knft.sync.prepare.render_plan", render)
    harness.apply(*slices("web", [11, 14]), service("other", 70), *slices("other", [71]))
    quarantined = harness.sync().quarantined
    assert [reason.startswith("rendering failed, please report this: ") for reason in quarantined.values()] == [True]
    assert ("10.96.0.70", "tcp", 80) in harness.table.elements["service-ips"]
    assert ("10.96.0.10", 80, 2) in harness.table.elements["endpoints-tcp"]


def test_restart_sends_nothing(harness: MemoryHarness) -> None:
    addresses = [f"198.51.100.{number}" for number in range(1, 40)]
    harness.apply(service("wide", 50, externalIPs=addresses), *slices("wide", range(101, 131)))
    harness.apply(_node("192.0.2.11"))
    harness.sync()
    second = harness.restarted()
    report = second.sync()
    assert (report.is_full, report.elements_added, report.elements_removed, report.chains_written) == (True, 0, 0, 0)
    assert report.service_ports == 3
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


def test_node_is_written_if_nothing_of_it_was_found() -> None:
    """On a first start without a table, there is nothing to keep."""
    harness = MemoryHarness()
    harness.proxier.hold_removals()
    harness.apply(_node("192.0.2.11"))
    harness.sync()
    assert set(harness.table.elements["nodeport-ips"]) == {("192.0.2.11",)}


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


def _raise(error: Exception) -> None:
    raise error
