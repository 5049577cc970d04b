"""A packet that is between two rules during a transaction gets an outcome of the state before or after the change."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest

from knft.families import Family
from knft.kernel.grace_period import FALLBACK_SECONDS
from knft.kernel.table import KernelTable
from knft.render import wide
from tests.packets.folded import folded
from tests.packets.held_packets import SILENT, Held, PacketHolder, Point, Target, other_cpus
from tests.packets.held_scenarios import BACKENDS, CLIENT, OWN, PORTS, UNTRANSLATED, Scenario, Step, scenarios, sticky
from tests.packets.phase_losses import CLEANUP_LOSSES, NEW_CHAINS_LOSSES, Loss, table
from tests.support.lab import plan
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.packets.in_process_node import InProcessNode
from tests.support.scenario import UNALLOCATED, UNPROXIED
from tests.support.transaction_counts import CHANGES, DOCUMENT, Counts
from tests.support.transaction_log import Phase, TransactionLog
from tests.support.waiting import wait_until

SERVICE_CIDR = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "ServiceCIDR",
    "metadata": {"name": "kubernetes"},
    "spec": {"cidrs": ["$services"]},
}
ALL_ICMP_ERRORS = {"net.ipv4.icmp_ratelimit": 0, "net.ipv6.icmp.ratelimit": 0}
EXTRA_ROUNDS = 20
"""How often the steps are repeated if a packet was not held until after the commit."""

CLEANUP_DELAY = 3 * FALLBACK_SECONDS
"""Seconds until a packet is released that the cleanup phase must wait for. Only a sleep would not be enough."""
WAITING_LOSSES = [loss for loss in CLEANUP_LOSSES if loss.point is Point.ENDPOINT]
"""The packets have read an old verdict."""


class HeldDuring(NamedTuple):
    """A transaction, and the packet that was held during it."""

    phase: Phase
    held: Held


class HoldingNode(NamedTuple):
    """The node under test, and what holds its packets."""

    lab: Lab
    node: InProcessNode
    holder: PacketHolder
    log: TransactionLog

    @contextmanager
    def beginning(self, scenario: Scenario) -> Iterator[None]:
        """Lead to the state before the first step; at the end, restore what the steps have changed."""
        factor = wide.COPIES_FACTOR
        try:
            scenario.begin(self.node)
            yield
        finally:
            wide.COPIES_FACTOR = factor
            self.node.delete_services()
            if scenario.deletes_tables:
                self.load_holding_rules()
            self.log.take()  # Otherwise the notifications of many tests exceed its buffer.

    def apply(self, step: Step, target: Target, point: Point) -> list[HeldDuring]:
        """Make a change; hold a packet during each of its transactions."""
        found: list[HeldDuring] = []

        def hold(commit: Callable[[], None]) -> None:
            phases: list[Phase] = []

            def counted() -> None:
                self.log.take()
                commit()
                phases.extend(self.log.take()[target.family])

            held = self.holder.during(counted, target, point)
            found.extend(HeldDuring(phase, held) for phase in phases)

        with _commits_of(target.family, hold):
            step.apply(self.node)
        return found

    def load_holding_rules(self) -> None:
        """Have packets held in knft's tables too."""
        for family in Family:
            self.holder.load_into(family.nft)


@contextmanager
def _commits_of(family: Family, hold: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Pass the commits of one family to ``hold``, which makes them."""

    def passing(original: Callable[..., None]) -> Callable[..., None]:
        def send(table: Any, *arguments: Any) -> None:
            if table._family is family:
                hold(lambda: original(table, *arguments))
            else:
                original(table, *arguments)

        return send

    with pytest.MonkeyPatch.context() as patch:
        for name in ("commit", "create"):
            patch.setattr(KernelTable, name, passing(getattr(KernelTable, name)))
        yield


@pytest.fixture(scope="module")
def holding_node(lab: Lab) -> Iterator[HoldingNode]:
    """The node under test, without a Service, and servers on all pods."""
    namespace = lab.host("node").namespace
    namespace.sysctls(ALL_ICMP_ERRORS)
    with other_cpus(), Responders() as servers, InProcessNode(lab) as node:
        for pod in {backend.pod for backend in BACKENDS} | {CLIENT}:
            for port in PORTS:
                servers.serve(lab.host(pod), port, "udp")
        for addresses in (UNALLOCATED, *UNPROXIED):
            for address in (addresses.ipv4, addresses.ipv6):
                servers.serve(lab.host(UNTRANSLATED), 80, "udp", address)
        node.apply([SERVICE_CIDR])
        with namespace.entered():
            log = TransactionLog()
        sentinel, own = lab.host("local-1"), lab.host(OWN.pod)
        with closing(log), PacketHolder(namespace, node.worker, sentinel, PORTS[0], own) as holder:
            holding = HoldingNode(lab, node, holder, log)
            holding.load_holding_rules()
            yield holding


SCENARIOS = {scenario.name: scenario for scenario in scenarios()}

NOT_HELD = {
    "chains deleted after an hour, for a timeout that no Service has": "no verdict leads a packet to them",
    "restart, nothing changed": "it takes no transaction",
    "restart, the table has another layout and is replaced": "it loses connections: docs/design/table-versions.md",
}
"""The kinds of change without a scenario, and why."""


def test_each_kind_of_change_has_a_scenario() -> None:
    """Each step with a kind also takes the transactions that the table says: ``_check_counts``."""
    covered = {step.kind for scenario in SCENARIOS.values() for step in scenario.steps if step.points}
    assert covered - {""} == CHANGES.keys() - NOT_HELD.keys()
    assert NOT_HELD.keys() <= CHANGES.keys()


@pytest.mark.kernel
@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("name", SCENARIOS)
def test_held_packet_gets_an_outcome_of_the_state_before_or_after(
    holding_node: HoldingNode, monkeypatch: pytest.MonkeyPatch, name: str, version: plan.Version
) -> None:
    """One packet is held at each point, during each transaction."""
    scenario = SCENARIOS[name]
    for module in ("prepare", "table_writer") if scenario.max_elements else ():
        monkeypatch.setattr(f"knft.sync.{module}.MAX_ELEMENTS", scenario.max_elements)
    with holding_node.beginning(scenario):
        _run(holding_node, scenario, version)


def _run(holding: HoldingNode, scenario: Scenario, version: plan.Version) -> None:
    """Repeat the steps until each point of each step has held a packet during the visible transaction.

    The first round may create shared chains, which stay, so counts are checked from the second round on.
    """
    remaining = {number: list(step.points) for number, step in enumerate(scenario.steps)}
    target = scenario.target(holding.lab, version)
    rounds = max(map(len, remaining.values())) + EXTRA_ROUNDS
    for rounds_before in range(rounds):
        for number, step in enumerate(scenario.steps):
            before = scenario.steps[number - 1]
            point = remaining[number][0] if remaining[number] else Point.NONE
            transactions = holding.apply(step, target, point)
            if rounds_before:
                _check_counts(step, transactions)
            allowed = before.outcomes | step.outcomes | step.meanwhile
            for phase, held in transactions:
                assert set(held.outcomes) <= allowed, f"{step.kind}, held at {point}, during transaction {phase}"
                if phase is Phase.VISIBLE and held.is_counted:
                    remaining[number].remove(point)
            assert holding.holder.outcome(target) in step.outcomes
        if rounds_before and not any(remaining.values()):
            return
    pytest.fail(f"no packet was held until after the commit at {remaining}")


def _check_counts(step: Step, transactions: list[HeldDuring]) -> None:
    phases = [each.phase for each in transactions]
    counts = Counts(*map(phases.count, (Phase.BEFORE, Phase.VISIBLE, Phase.AFTER)))
    assert not step.kind or counts == CHANGES[step.kind], step.kind


@pytest.mark.kernel
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("loss", NEW_CHAINS_LOSSES, ids=lambda loss: loss.kind)
def test_packet_is_lost_if_new_chains_are_part_of_the_main_phase(
    holding_node: HoldingNode, loss: Loss, version: plan.Version
) -> None:
    """This is why the new-chains phase exists."""
    with folded(new_chains=True):
        assert _held_outcomes(holding_node, loss, version) == {loss.outcome}


@pytest.mark.kernel
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("loss", CLEANUP_LOSSES, ids=lambda loss: loss.kind)
def test_packet_is_lost_if_deferred_removals_are_part_of_the_main_phase(
    holding_node: HoldingNode, monkeypatch: pytest.MonkeyPatch, loss: Loss, version: plan.Version
) -> None:
    """This is why the cleanup phase exists."""
    _limit_wait(holding_node, monkeypatch, loss)
    with folded(deferred_removals=True):
        assert _held_outcomes(holding_node, loss, version) == {loss.outcome}


@pytest.mark.kernel
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("loss", CLEANUP_LOSSES, ids=lambda loss: loss.kind)
def test_packet_is_lost_if_it_is_held_until_after_the_cleanup_phase(
    holding_node: HoldingNode, monkeypatch: pytest.MonkeyPatch, loss: Loss, version: plan.Version
) -> None:
    """This is why it waits after some changes; docs/design/transaction-phases.md#limits lists those without a wait."""
    _limit_wait(holding_node, monkeypatch, loss)
    monkeypatch.setattr(KernelTable, "wait_for_packets", lambda _: None)
    for step, target in _steps_of_kind(holding_node, loss, version):
        held = holding_node.holder.during(partial(step.apply, holding_node.node), target, loss.point)
        if held.is_counted:
            assert held.outcomes[-1] == loss.outcome
            return
    pytest.fail("no packet was held until after the commits")


@pytest.mark.kernel
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("loss", WAITING_LOSSES, ids=lambda loss: loss.kind)
def test_cleanup_phase_waits_for_a_packet_with_an_old_verdict(
    holding_node: HoldingNode, monkeypatch: pytest.MonkeyPatch, loss: Loss, version: plan.Version
) -> None:
    """The packet is held after the main phase for much longer than the cleanup phase would need to begin."""
    scenario, family = _scenario_of(loss), Family.IPV4 if version == 4 else Family.IPV6
    waiting, original = threading.Event(), KernelTable.wait_for_packets

    def wait(table: KernelTable) -> None:
        if table._family is family:  # The other family would wait for the packet too.
            assert Phase.VISIBLE in holding_node.log.take()[family]
            waiting.set()
            original(table)

    monkeypatch.setattr(KernelTable, "wait_for_packets", wait)
    with ThreadPoolExecutor(1) as executor:
        for step, target in _steps_of_kind(holding_node, loss, version):
            waiting.clear()
            syncs: list[Future[None]] = []

            def begin_sync(step: Step = step, syncs: list[Future[None]] = syncs) -> None:
                holding_node.log.take()  # The rules that hold the packet.
                sync = executor.submit(step.apply, holding_node.node)
                syncs.append(sync)
                wait_until(lambda: waiting.is_set() or sync.done(), "the sync does not reach the cleanup phase")
                time.sleep(CLEANUP_DELAY)

            held = holding_node.holder.during(begin_sync, target, loss.point)
            syncs[0].result()
            assert waiting.is_set()
            if held.is_counted:
                before = scenario.steps[scenario.steps.index(step) - 1]
                assert held.outcomes[-1] in before.outcomes | step.outcomes | step.meanwhile
                return
    pytest.fail("no packet was held until after the main phase")


def _steps_of_kind(holding: HoldingNode, loss: Loss, version: plan.Version) -> Iterator[tuple[Step, Target]]:
    """Make the changes of a scenario again and again, except those of the kind of ``loss``: yield them instead."""
    scenario = _scenario_of(loss)
    target = scenario.target(holding.lab, version)
    with holding.beginning(scenario):
        for _ in range(EXTRA_ROUNDS):
            for step in scenario.steps:
                if step.kind == loss.kind:
                    yield step, target
                else:
                    step.apply(holding.node)


@pytest.mark.kernel
@pytest.mark.parametrize("version", [4, 6])
def test_known_client_keeps_its_endpoint_when_that_moves_to_another_index(
    holding_node: HoldingNode, version: plan.Version
) -> None:
    """The packet is held between the rules of two indexes, while its endpoint gets the first of them."""
    held, expected = _held_while_its_endpoint_moves(holding_node, version)
    assert {Phase.VISIBLE, Phase.AFTER} <= held.keys()
    assert set(held.values()) == {expected}


@pytest.mark.kernel
@pytest.mark.parametrize("version", [4, 6])
def test_known_client_gets_another_endpoint_without_the_cleanup_phase(
    holding_node: HoldingNode, version: plan.Version
) -> None:
    """This is why the old index stays until the cleanup phase.

    The client is assigned at random, and keeps the new endpoint if that has a lower index.
    """
    with folded(deferred_removals=True):
        for _ in range(3 * EXTRA_ROUNDS):
            held, expected = _held_while_its_endpoint_moves(holding_node, version)
            if held[Phase.VISIBLE] != expected:
                return
    pytest.fail("the client has kept its endpoint")


def _held_while_its_endpoint_moves(holding: HoldingNode, version: plan.Version) -> tuple[dict[Phase, str], str]:
    """Remove the endpoint with index 1, so that the client's moves there from the end; hold a packet in each phase.

    Return the pods that answered the held packets, and the client's.
    """
    scenario, target, pods = _sticky_service(holding, version)
    with holding.beginning(scenario):
        client_pod, indexes = _assign(holding, target, pods, lambda index: index > 1)
        last = indexes[client_pod]
        kept = [pod for pod in pods if indexes[pod] <= last]
        holding.node.apply(sticky(kept))
        remaining = [pod for pod in kept if indexes[pod] != 1]
        step = Step("", lambda node: node.apply(sticky(remaining)), frozenset())
        transactions = holding.apply(step, target, Point.KNOWN)
        assert _pod_indexes(holding, target, pods)[client_pod] == 1
        assert all(held.is_counted for phase, held in transactions if phase is Phase.VISIBLE)
        return {phase: held.outcomes[-1] for phase, held in transactions}, client_pod


@pytest.mark.kernel
@pytest.mark.parametrize("version", [4, 6])
def test_packet_to_a_removed_endpoint_may_go_to_the_one_that_takes_its_index(
    holding_node: HoldingNode, version: plan.Version
) -> None:
    """It meets the commit between two lookups of one rule. Its client gets no affinity entry: a limit of the layout."""
    scenario, target, pods = _sticky_service(holding_node, version)
    three = dict(list(pods.items())[:3])
    with holding_node.beginning(scenario):
        for _ in range(EXTRA_ROUNDS):
            client_pod, indexes = _assign(holding_node, target, three, lambda index: index == 1)
            before = _affinity_entries(holding_node, target)
            remaining = sticky(pod for pod in three if pod != client_pod)
            held = _hold_during_first(
                holding_node, partial(holding_node.node.apply, remaining), target, Point.LOOKED_UP
            )
            if held.is_counted:
                break
        else:
            pytest.fail("no packet was held until after the commits")
        (taking,) = (pod for pod, index in indexes.items() if index == len(three) - 1)
        assert _pod_indexes(holding_node, target, three)[taking] == 1
        assert held.outcomes == [taking]
        assert before
        assert _affinity_entries(holding_node, target) == before


def _hold_during_first(holding: HoldingNode, change: Callable[[], None], target: Target, point: Point) -> Held:
    """Make a change; hold a packet during its first transaction in the family of the target."""
    found: list[Held] = []

    def hold(commit: Callable[[], None]) -> None:
        if found:
            commit()
        else:
            found.append(holding.holder.during(commit, target, point))

    with _commits_of(target.family, hold):
        change()
    return found[0]


def _sticky_service(holding: HoldingNode, version: plan.Version) -> tuple[Scenario, Target, dict[str, str]]:
    """Return a scenario with a sticky Service, its target, and the addresses of all pods that can be its endpoints."""
    scenario = SCENARIOS["Service with only a cluster IP made sticky, cluster"]
    pods = {backend.pod: holding.lab.host(backend.pod).address(version) for backend in BACKENDS}
    return scenario, scenario.target(holding.lab, version), pods


def _assign(
    holding: HoldingNode, target: Target, pods: dict[str, str], is_wanted: Callable[[int], bool]
) -> tuple[str, dict[str, int]]:
    """Assign the client to an endpoint with a wanted index; return its pod, and the indexes of all pods."""
    for _ in range(EXTRA_ROUNDS):
        holding.node.apply(sticky(pods))
        client_pod = holding.holder.outcome(target)
        indexes = _pod_indexes(holding, target, pods)
        if is_wanted(indexes[client_pod]):
            return client_pod, indexes
        # It is added again with another ID, so the client is assigned again.
        holding.node.apply(sticky(pod for pod in pods if pod != client_pod))
    pytest.fail("the client was not assigned to a wanted index")


def _affinity_entries(holding: HoldingNode, target: Target) -> set[str]:
    """Return the IDs of the endpoints that the client is assigned to, or was."""
    family = target.family.nft
    listing = holding.node.namespace.run(["nft", "list", "set", family, "knft", "affinity-clients"]).stdout
    return set(re.findall(rf"{re.escape(target.client.address(target.version))} \. (\S+) ", listing))


def _pod_indexes(holding: HoldingNode, target: Target, pods: dict[str, str]) -> dict[str, int]:
    """Return the indexes of the pods that are endpoints of the target in the kernel."""
    indexes = _endpoint_indexes(holding, target)
    return {pod: indexes[where] for pod, where in pods.items() if where in indexes}


def _endpoint_indexes(holding: HoldingNode, target: Target) -> dict[str, int]:
    """Return the indexes of the endpoints of the target in the kernel, by address."""
    family = target.family.nft
    listing = holding.node.namespace.run(["nft", "list", "map", family, "knft", "endpoints-udp"]).stdout
    found = re.findall(rf"{re.escape(target.address)} \. {target.port} \. (\d+) : (\S+) \.", listing)
    return {endpoint: int(index) for index, endpoint in found}


def test_document_lists_the_losses() -> None:
    assert "\n".join(table()) in DOCUMENT.read_text()


def _limit_wait(holding: HoldingNode, monkeypatch: pytest.MonkeyPatch, loss: Loss) -> None:
    """Wait half a second if no answer is expected; a late one would count as none, which fails no test."""
    if loss.outcome == SILENT:
        monkeypatch.setattr(holding.holder, "answer_timeout", 0.5)


def _scenario_of(loss: Loss) -> Scenario:
    return next(
        each
        for each in SCENARIOS.values()
        if each.address_kind == loss.address_kind and loss.kind in {step.kind for step in each.steps}
    )


def _held_outcomes(holding: HoldingNode, loss: Loss, version: plan.Version) -> set[str]:
    """Return the outcomes of the packets that were held during a change, without those that could not be held."""
    scenario = _scenario_of(loss)
    target = scenario.target(holding.lab, version)
    with holding.beginning(scenario):
        for _ in range(EXTRA_ROUNDS):
            for step in scenario.steps:
                point = loss.point if step.kind == loss.kind else Point.NONE
                transactions = holding.apply(step, target, point)
                found = {
                    held.outcomes[-1] for phase, held in transactions if phase is Phase.VISIBLE and held.is_counted
                }
                if step.kind == loss.kind and found:
                    return found
    pytest.fail("no packet was held until after the commit")
