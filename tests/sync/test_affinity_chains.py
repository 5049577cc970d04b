"""Shared chains for affinity timeouts that no Service port has are removed, but never while one may be used."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from knft.errors import KernelError
from knft.model.plan import ServicePlan
from knft.nft.transaction import Transaction
from knft.render.fragment import Fragment, render_plan
from knft.sync.invalidation import Invalidation
from knft.sync.proxier import MAX_UNUSED_CHAINS, UNUSED_CHAINS_INTERVAL_SECONDS
from tests.support.kernel_harness import service, slices
from tests.support.memory_harness import MemoryHarness
from tests.support.refused_services import refuse_address

SHORT, LONG = 60, 10800


def _sticky(name: str, number: int, timeout: int, **spec: Any) -> dict[str, Any]:
    config = {"clientIP": {"timeoutSeconds": timeout}}
    return service(name, number, sessionAffinity="ClientIP", sessionAffinityConfig=config, **spec)


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a Service of each timeout, and one without affinity."""
    harness = MemoryHarness()
    harness.apply(
        *(_sticky("short", 1, SHORT, node_port=30080), *slices("short", [11, 12])),
        *(_sticky("long", 2, LONG), *slices("long", [21, 22])),
        *(service("web", 3), *slices("web", [31, 32])),
    )
    harness.sync()
    return harness


def _timeouts(harness: MemoryHarness) -> set[int]:
    """Return the timeouts for which there are shared chains with rules."""
    names = (name.removeprefix("external-") for name, chain in harness.table.chains.items() if chain.rules)
    return {int(name.split("-")[1]) for name in names if name.startswith("affinity-")}


def _sync_after_an_hour(harness: MemoryHarness) -> None:
    harness.now += UNUSED_CHAINS_INTERVAL_SECONDS
    harness.sync()


def _assert_removed(harness: MemoryHarness) -> None:
    assert _timeouts(harness) == {LONG}
    assert not [name for name in harness.table.chains if f"affinity-{SHORT}-" in name]
    assert harness.differences() == []
    assert harness.proxier.audit(harness.table) == 0


def test_service_ports_with_equal_timeouts_share_chains(harness: MemoryHarness) -> None:
    harness.apply(_sticky("more", 4, LONG), *slices("more", [41, 42]))
    assert harness.sync().chains_written == 0
    assert harness.differences() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda harness: harness.delete("Service", "short"),
        lambda harness: harness.apply(service("short", 1)),
        lambda harness: harness.apply(_sticky("short", 1, LONG)),
    ],
    ids=["Service deleted", "affinity removed", "timeout changed"],
)
def test_unused_chains_are_removed_after_an_hour(
    harness: MemoryHarness, change: Callable[[MemoryHarness], None]
) -> None:
    """Until then, another Service port with this timeout would need no new chains."""
    change(harness)
    harness.sync()
    harness.now += UNUSED_CHAINS_INTERVAL_SECONDS - 1
    assert harness.sync().next_sync_within is None
    assert _timeouts(harness) == {SHORT, LONG}
    harness.now += 1
    report = harness.sync()
    assert (report.is_full, report.next_sync_within, report.elements_removed) == (False, None, 0)
    _assert_removed(harness)
    sent = len(harness.last_transaction.deleted_chains)
    assert sent == len(harness.last_transaction.chains) == 2 * 2 + 1


def test_unused_chains_are_removed_each_hour(harness: MemoryHarness) -> None:
    for timeout in (61, 62, 63):
        harness.apply(_sticky("short", 1, timeout))
        harness.sync()
        _sync_after_an_hour(harness)
        assert _timeouts(harness) == {timeout, LONG}
        assert harness.differences() == []


def test_chains_of_a_service_without_endpoints_stay(harness: MemoryHarness) -> None:
    harness.apply(*slices("short", []))
    harness.sync()
    _sync_after_an_hour(harness)
    assert _timeouts(harness) == {SHORT, LONG}
    harness.apply(*slices("short", [11, 12]))
    assert harness.sync().chains_written == 0
    assert harness.differences() == []


def test_pool_chains_without_affinity_stay(harness: MemoryHarness) -> None:
    """They are few, and creating them again would take long if their maps are large."""
    pools = {name for name in harness.table.chains if name.startswith(("pool-", "nodeport-pool-"))}
    for name in ("short", "long", "web"):
        harness.delete("Service", name)
    harness.sync()
    _sync_after_an_hour(harness)
    assert _timeouts(harness) == set()
    assert pools <= harness.table.chains.keys()


def test_next_process_removes_unused_chains(harness: MemoryHarness) -> None:
    harness.delete("Service", "short")
    second = harness.restarted()
    assert second.sync().chains_written == 0
    assert _timeouts(second) == {SHORT, LONG}
    _sync_after_an_hour(second)
    _assert_removed(second)


def test_removed_chains_are_created_again_if_needed(harness: MemoryHarness) -> None:
    before = dict(harness.table.chains)
    harness.delete("Service", "short")
    harness.sync()
    _sync_after_an_hour(harness)
    harness.apply(_sticky("short", 1, SHORT, node_port=30080))
    assert not harness.sync().is_full
    assert harness.table.chains == before
    assert harness.differences() == []


def _refuse_deletions(transaction: Transaction) -> None:
    """Refuse to delete chains in a transaction that changes others, as old kernels do."""
    if transaction.deleted_chains and transaction.chains:
        msg = "Device or resource busy"
        raise KernelError(msg)


def test_emptied_chains_are_deleted_later_if_the_kernel_refuses_it(harness: MemoryHarness) -> None:
    harness.delete("Service", "short")
    harness.sync()
    harness.table.on_commit = _refuse_deletions
    _sync_after_an_hour(harness)
    assert _timeouts(harness) == {LONG}
    assert [name for name in harness.table.chains if f"affinity-{SHORT}-" in name]
    assert harness.differences() == []
    harness.now += 1.1
    assert harness.sync().next_sync_within is None
    _assert_removed(harness)


@pytest.mark.parametrize("has_restarted", [False, True])
def test_emptied_chains_that_are_needed_again_are_not_deleted(harness: MemoryHarness, *, has_restarted: bool) -> None:
    before = dict(harness.table.chains)
    harness.delete("Service", "short")
    harness.sync()
    harness.table.on_commit = _refuse_deletions
    _sync_after_an_hour(harness)
    if has_restarted:
        harness = harness.restarted()
    harness.apply(_sticky("short", 1, SHORT, node_port=30080))
    assert harness.sync().next_sync_within is None
    for _ in range(2):
        harness.now += 10.0
        harness.sync()
        assert harness.table.chains == before
        assert harness.differences() == []


def _set_max_chains(harness: MemoryHarness, count: int) -> None:
    removal = harness.proxier._chain_removal
    harness.proxier._chain_removal = structs.replace(removal, max_chains=count)


def test_unused_chains_are_removed_once_there_are_too_many(harness: MemoryHarness) -> None:
    """A Service may get another timeout at any time, and another number of endpoints."""
    before = len(harness.table.chains)
    _set_max_chains(harness, before + 10)
    for timeout in range(100, 120):
        harness.apply(_sticky("short", 1, timeout, node_port=30080))
        harness.sync()
        if {SHORT, timeout - 1}.isdisjoint(_timeouts(harness)):
            break
    assert timeout == 103
    assert len(harness.table.chains) == before
    assert harness.differences() == []
    assert harness.proxier._chain_removal.max_chains >= before + MAX_UNUSED_CHAINS


def test_many_chains_are_not_searched_in_each_sync(harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit grows with the chains that are used."""
    searches: list[set[int]] = []
    timeouts = harness.state.affinity_timeouts

    def search() -> set[int]:
        searches.append(timeouts())
        return searches[-1]

    monkeypatch.setattr(harness.state, "affinity_timeouts", search)
    _set_max_chains(harness, 10)
    for timeout in range(100, 110):
        harness.apply(_sticky("short", 1, timeout))
        harness.sync()
    assert len(searches) == 1


def test_unused_chains_stay_while_a_service_port_is_quarantined(harness: MemoryHarness) -> None:
    """Elements of the quarantined one still lead to them."""
    harness.apply(_sticky("short", 1, LONG))
    harness.table.on_commit = refuse_address("10.96.0.1")
    assert len(harness.sync().quarantined) == 1
    for _ in range(3):
        harness.now += UNUSED_CHAINS_INTERVAL_SECONDS
        assert len(harness.sync().quarantined) == 1
        assert _timeouts(harness) == {SHORT, LONG}
    harness.table.stop_failing()
    harness.now += 2 * UNUSED_CHAINS_INTERVAL_SECONDS
    assert harness.sync().quarantined == {}
    harness.sync()
    _assert_removed(harness)


def test_unused_chains_stay_if_a_service_port_cannot_be_rendered(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync that finds the bug has to keep them, too."""

    def render(plan: ServicePlan, *arguments: Any) -> Fragment:
        if plan.name.name == "short":
            msg = "a bug, for the test"
            raise ZeroDivisionError(msg)
        return render_plan(plan, *arguments)

    harness.apply(_sticky("short", 1, LONG))
    with monkeypatch.context() as patch:
        patch.setattr("knft.sync.prepare.render_plan", render)
        harness.now += UNUSED_CHAINS_INTERVAL_SECONDS
        assert not harness.sync().is_full
        assert _timeouts(harness) == {SHORT, LONG}
    for _ in range(2):
        harness.now += 100.0  # The retry is a full sync.
        harness.sync()
    _assert_removed(harness)


def test_unused_chains_stay_while_objects_are_unknown(harness: MemoryHarness) -> None:
    second = MemoryHarness(harness.table, now=harness.now)
    second.proxier.hold_removals()
    for (kind, name), item in harness.objects.items():
        if not name.startswith("short"):
            second.change(kind, name, item)
    second.sync()
    for _ in range(2):
        _sync_after_an_hour(second)
        assert _timeouts(second) == {SHORT, LONG}
    second.proxier.release_removals()
    for _ in range(2):
        second.sync()
    _assert_removed(second)


def test_unused_chains_stay_while_orphans_lead_to_them(harness: MemoryHarness) -> None:
    harness.delete("Service", "short")
    harness.table.on_commit = refuse_address("10.96.0.1")
    for _ in range(3):
        assert harness.sync().orphan_error
        harness.now += 2 * UNUSED_CHAINS_INTERVAL_SECONDS
        assert _timeouts(harness) == {SHORT, LONG}
    harness.table.stop_failing()
    for _ in range(2):
        assert harness.sync().orphan_error == ""
    _assert_removed(harness)


def test_unused_chains_stay_while_a_service_port_is_postponed(
    harness: MemoryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its elements still lead to the chains of its old timeout."""
    monkeypatch.setattr("knft.sync.proxier.MAX_RULES", 1)
    addresses = [f"198.51.100.{number}" for number in range(1, 40)]
    harness.apply(_sticky("a-wide", 5, LONG, externalIPs=addresses), *slices("a-wide", range(50, 80)))
    harness.apply(_sticky("short", 1, LONG))
    harness.now += UNUSED_CHAINS_INTERVAL_SECONDS
    report = harness.sync()
    assert (report.is_full, report.is_complete) == (False, False)
    assert _timeouts(harness) == {SHORT, LONG}
    while not harness.sync().is_complete:
        pass
    harness.sync()
    _assert_removed(harness)


def test_full_sync_does_not_prevent_the_removal(harness: MemoryHarness) -> None:
    """Hourly audits may cause full syncs."""
    harness.delete("Service", "short")
    harness.proxier.invalidate(Invalidation(declarations=True))
    harness.now += UNUSED_CHAINS_INTERVAL_SECONDS
    assert harness.sync().is_full
    assert _timeouts(harness) == {SHORT, LONG}
    harness.sync()
    _assert_removed(harness)
