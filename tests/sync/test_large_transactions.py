"""The endpoints of a large transaction are sent and deleted in pieces, which bounds the memory of libnftables."""

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.nft.objects import Entry
from knft.nft.transaction import Transaction
from knft.render import wide
from knft.render.names import SERVICE_IPS
from tests.support.kernel_harness import (
    KernelHarness,
    contents_of_fresh_start,
    element_operations,
    service,
    slices,
)
from tests.support.refused_services import refuse_address

pytestmark = pytest.mark.kernel

PIECE, SERVICES = 8, 10


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("prepare", "table_writer"):
        monkeypatch.setattr(f"knft.sync.{module}.MAX_ELEMENTS", PIECE)


def _apply_services(harness: KernelHarness) -> None:
    for number in range(1, SERVICES + 1):
        harness.apply(service(f"web-{number}", number), *slices(f"web-{number}", range(1, 6)))


def _endpoint_counts(transactions: list[Transaction]) -> list[int]:
    """Return how many elements of endpoint maps each transaction adds."""
    return [
        sum(len(added) for name, added in transaction.added.items() if name.endswith("endpoints-tcp"))
        for transaction in transactions
    ]


def _verdict_counts(transactions: list[Transaction]) -> list[int]:
    return [len(transaction.added.get(SERVICE_IPS, {})) for transaction in transactions]


@pytest.mark.parametrize("table", ["missing", "existing"])
def test_no_transaction_has_more_endpoints(harness: KernelHarness, table: str) -> None:
    """All verdicts are in the last transaction: nothing leads to an endpoint before."""
    if table == "existing":
        harness.apply(service("first", 99), *slices("first", [1]))
        harness.sync()
    _apply_services(harness)
    port = harness.checked_tables[Family.IPV4]
    port.transactions.clear()

    harness.sync()

    sent = list(port.transactions)
    counts = _endpoint_counts(sent)
    assert max(counts) == PIECE
    assert sum(counts) == SERVICES * 5
    assert _verdict_counts(sent) == [0] * (len(sent) - 1) + [SERVICES]


def test_table_is_that_of_a_fresh_start(harness: KernelHarness) -> None:
    _apply_services(harness)
    harness.sync()
    assert harness.listing().contents == contents_of_fresh_start(harness)


@pytest.mark.parametrize("refused", ["verdict", "endpoint piece"])
def test_refused_service_leaves_no_endpoints_behind(harness: KernelHarness, refused: str) -> None:
    harness.sync()
    _apply_services(harness)
    port = harness.checked_tables[Family.IPV4]
    refuse = refuse_address("10.96.0.5")

    def refuse_some(transaction: Transaction) -> None:
        has_verdicts = any(isinstance(value, Entry) for added in transaction.added.values() for value in added.values())
        if has_verdicts == (refused == "verdict"):
            refuse(transaction)

    port.on_commit = refuse_some

    reports = harness.sync()
    assert [name.name for name in reports[Family.IPV4].quarantined] == (["web-5"] if refused == "verdict" else [])
    port.on_commit = lambda _: None
    harness.delete("Service", "web-5")
    harness.sync()

    contents = harness.listing().contents
    assert contents == contents_of_fresh_start(harness)
    assert not any("10.96.0.5" in name.prefix for name in contents.arrays)


@pytest.mark.parametrize("remaining", [0, 1])
def test_endpoints_of_a_large_service_are_removed_in_pieces(harness: KernelHarness, remaining: int) -> None:
    """The first transaction changes what packets meet, also endpoint 0, which packets in flight look up."""
    count, local = 40, range(1, 21)
    harness.apply(service("first", 99), *slices("first", [1]))
    harness.apply(service("web"), *slices("web", range(1, count + 1), local=local))
    harness.sync()
    if remaining:
        harness.apply(*slices("web", range(1, remaining + 1), local=local))
    else:
        harness.delete("Service", "web")
    port = harness.checked_tables[Family.IPV4]
    port.transactions.clear()

    harness.sync()

    sent = [transaction for transaction in port.transactions if not transaction.is_empty]
    removed_counts = [each.removed_count for each in sent[1:]]
    assert max(removed_counts) == PIECE
    assert sum(removed_counts) == (count - max(remaining, 1)) + (len(local) - remaining)
    assert len(sent[0].removed[SERVICE_IPS]) == 1
    gone = set(sent[0].removed.get("endpoints-tcp", ())) - sent[0].added.get("endpoints-tcp", {}).keys()
    assert gone == (set() if remaining else {("10.96.0.10", 80, 0)})
    assert port.reads == 1
    assert harness.listing().contents == contents_of_fresh_start(harness)


def test_refused_piece_of_a_removal_is_repeated(harness: KernelHarness) -> None:
    """What earlier pieces have removed is not removed again."""
    harness.apply(service("web"), *slices("web", range(1, 41)))
    harness.sync()
    harness.delete("Service", "web")
    port = harness.checked_tables[Family.IPV4]
    is_refused = iter((False, False, True))

    def refuse_third(_: Transaction) -> None:
        if next(is_refused, False):
            msg = "refused for the test"
            raise KernelError(msg)

    port.on_commit = refuse_third
    harness.sync()

    assert port.reads == 2
    assert harness.listing().contents == contents_of_fresh_start(harness)


@pytest.mark.parametrize("table", ["missing", "existing"])
def test_new_chains_of_a_large_sticky_service_are_sent_in_pieces(
    harness: KernelHarness, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """All chains exist before the first has rules, since rules may lead to any of them; the verdicts come last."""
    for name in ("prepare.MAX_RULES", "table_writer.MAX_NEW_RULES"):
        monkeypatch.setattr(f"knft.sync.{name}", 10)
    if table == "existing":
        harness.sync()
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 6)]
    slice_ports = [{"name": f"p{number}", "port": 8000 + number} for number in range(1, 6)]
    harness.apply(
        service("web", sessionAffinity="ClientIP", ports=ports),
        *(item | {"ports": slice_ports} for item in slices("web", range(1, 6))),
    )
    port = harness.checked_tables[Family.IPV4]
    port.transactions.clear()

    harness.sync()

    sent = [transaction for transaction in port.transactions if not transaction.is_empty]
    rules = [sum(len(chain.rules) for chain in transaction.new_chains) for transaction in sent]
    assert rules[0] == 0
    assert len(sent[0].new_chains) >= 10
    assert max(rules) <= 10
    affinity_rules = [
        len(chain.rules) for each in sent for chain in each.new_chains if chain.name.startswith("affinity-")
    ]
    assert sum(affinity_rules) == 4 + 4 + (2 + 1 + 2 + 1)
    assert _verdict_counts(sent)[-1] == 5
    assert harness.listing().contents == contents_of_fresh_start(harness)


def test_changed_chains_of_a_wide_sticky_service_are_sent_in_pieces(
    harness: KernelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Service port is never split, so its packets see one change."""
    monkeypatch.setattr(wide, "COPIES_FACTOR", 0)
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 6)]
    slice_ports = [{"name": f"p{number}", "port": 8000 + number} for number in range(1, 6)]
    item = service("web", sessionAffinity="ClientIP", ports=ports)
    harness.apply(item, *(each | {"ports": slice_ports} for each in slices("web", range(1, 6))))
    harness.sync()
    monkeypatch.setattr("knft.sync.proxier.MAX_RULES", 10)
    harness.apply(*(each | {"ports": slice_ports} for each in slices("web", range(1, 5))))
    port = harness.checked_tables[Family.IPV4]
    port.transactions.clear()

    harness.sync()

    sent = [transaction for transaction in port.transactions if not transaction.is_empty]
    assert [len(transaction.chains) for transaction in sent] == [4, 4, 2]
    assert port.reads == 1
    counts = harness.listing().rule_counts
    assert [count for name, count in counts.items() if name.endswith("-known-0")] == [4] * 5


def test_other_changes_do_not_wait_for_a_wide_sticky_service(
    harness: KernelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changes meanwhile is part of the next transaction; each report has the changes that are in force."""
    monkeypatch.setattr("knft.sync.proxier.MAX_RULES", 11)
    monkeypatch.setattr(wide, "COPIES_FACTOR", 0)
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 6)]
    slice_ports = [{"name": f"p{number}", "port": 8000 + number} for number in range(1, 6)]
    harness.apply(service("small", 20), *slices("small", [11]))
    harness.sync()
    harness.apply(
        service("large", sessionAffinity="ClientIP", ports=ports),
        *(each | {"ports": slice_ports} for each in slices("large", range(1, 6))),
    )
    port, proxier = harness.checked_tables[Family.IPV4], harness.proxiers[Family.IPV4]
    port.transactions.clear()

    reports = [proxier.sync()]
    harness.apply(*slices("small", [11, 12]), service("plain", 30))
    while not reports[-1].is_complete:
        reports.append(proxier.sync())

    changed = [{name.name for name in report.changed_service_ports} for report in reports]
    assert changed == [{"large"}, {"large", "small", "plain"}, {"large"}]
    assert [len(report.changed_service_ports) for report in reports] == [2, 4, 1]
    assert harness.listing().contents == contents_of_fresh_start(harness)


def test_daemon_syncs_until_all_changes_are_in_force(harness: KernelHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knft.sync.proxier.MAX_RULES", 1)
    monkeypatch.setattr(wide, "COPIES_FACTOR", 0)
    harness.sync()
    for number in range(1, 4):
        name = f"web-{number}"
        harness.apply(service(name, number, sessionAffinity="ClientIP"), *slices(name, [10 + number]))

    assert harness.daemon.sync()

    assert all(proxier.is_complete for proxier in harness.proxiers.values())
    assert harness.listing().contents == contents_of_fresh_start(harness)


@pytest.mark.parametrize("endpoints", [300, 900])
def test_changed_endpoint_of_a_large_sticky_service_is_a_small_transaction(
    harness: KernelHarness, endpoints: int
) -> None:
    """A replaced endpoint writes no rules, and a removed one only the chains of the new size, if these are new."""
    harness.apply(service("web", sessionAffinity="ClientIP"), *slices("web", range(1, endpoints + 1)))
    harness.sync()
    others = [*range(1, 200), *range(201, endpoints + 1)]
    port = harness.checked_tables[Family.IPV4]
    for numbers, count in (([*others, endpoints + 1], 4), (others, 2 + 4 + 2), ([*others, 200], 2 + 1 + 1)):
        port.transactions.clear()
        harness.apply(*slices("web", numbers))
        harness.sync()
        sent = list(port.transactions)
        assert sum(map(element_operations, sent)) == count
        new_chains = [chain for each in sent for chain in (*each.new_chains, *each.chains)]
        new_size = f"pool-tcp-{endpoints - 1}"
        names = {f"affinity-10800-{new_size}", new_size} if numbers is others else set()
        assert {chain.name for chain in new_chains} == names
        assert sum(len(chain.rules) for chain in new_chains) <= 2 * (5 + endpoints / 64) + 4
