"""Makes thousands of connections while endpoints change as fast as knft syncs."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.support.lab.clients import ClientProcesses
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.packets.churn import PODS, SERVICES, TARGET_PORTS, Churn
from tests.support.packets.connection_checks import ConnectionChecker
from tests.support.packets.frontends import CLIENTS, frontends
from tests.support.packets.in_process_node import InProcessNode
from tests.support.packets.timeline import Timeline
from tests.support.packets.untranslated_counter import UntranslatedCounter


class ConnectionsResult(NamedTuple):
    """The result of a run."""

    syncs: int
    seen: Counter[str]
    """Counts of connections during a commit, and of sticky clients that stayed and that moved."""
    answered: Counter[str]
    faults: list[str]
    untranslated: int
    seconds: float

    def __str__(self) -> str:
        """Return the figures."""
        figures = ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))
        return (
            f"{self.answered.total()} connections answered in {self.seconds:.1f} s, {self.syncs} syncs, {figures}, "
            f"{self.untranslated} packets untranslated, {len(self.faults)} faults"
        )


def run_churn(
    lab: Lab, folder: Path, count: int, seed: int, before_step: Callable[[], None] = lambda: None
) -> ConnectionsResult:
    """Make ``count`` connections in a lab with many client addresses; their records are written to ``folder``.

    ``before_step`` is called before each change of the cluster.
    """
    churn = Churn(Random(seed))  # noqa: S311 - reproducible
    timelines = {service.name: Timeline() for service in SERVICES}
    client_frontends = {lab.host(client): frontends(client) for client in CLIENTS}
    plans = {host: [frontend.target for frontend in seen] for host, seen in client_frontends.items()}
    clients = ClientProcesses(plans, folder, -(-count // len(CLIENTS)), seed)
    node_ports = [service.node_port for service in SERVICES]
    began, syncs = time.monotonic(), 0
    with (
        ResponderProcess(map(lab.host, PODS), TARGET_PORTS),
        InProcessNode(lab) as node,
        UntranslatedCounter(node.namespace, node_ports) as counter,
    ):
        node.apply(churn.objects())
        for name, timeline in timelines.items():
            timeline.record(began, churn.pools[name], time.monotonic())
        with clients:
            while clients.are_running:
                name, slices = churn.step()
                before_step()
                begun = time.monotonic()
                node.apply(slices)
                timelines[name].record(begun, churn.pools[name], time.monotonic())
                syncs += 1
        untranslated = counter.packets
    checker = ConnectionChecker(timelines)
    for host, seen in client_frontends.items():
        for connection in clients.connections(host):
            checker.check(seen[connection.target], connection)
    return ConnectionsResult(
        syncs, checker.seen, checker.answered, checker.faults, untranslated, time.monotonic() - began
    )
