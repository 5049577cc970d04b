"""One round of calls by the thousand, while endpoints come and go as fast as syncs go."""

import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.packets.churn import PODS, SERVICES, TARGET_PORTS, Churn
from tests.packets.frontends import CLIENTS, frontends
from tests.packets.judge import Judge
from tests.packets.live import LiveNode
from tests.packets.timeline import Timeline
from tests.packets.witness import Witness
from tests.support.lab.answering import Answering
from tests.support.lab.calls import Callers
from tests.support.lab.topology import Lab


class Round(NamedTuple):
    """What has come of it."""

    syncs: int
    seen: Counter[str]
    """What there was to see: calls across a commit, sticky clients that stayed and that moved."""
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


def play(lab: Lab, folder: Path, count: int, seed: int) -> Round:
    """Make ``count`` calls in a lab with a crowd; what they write down goes to ``folder``."""
    churn = Churn(Random(seed))  # noqa: S311 - to be had again
    timelines = {kind.name: Timeline() for kind in SERVICES}
    dialled = {lab.host(client): frontends(client) for client in CLIENTS}
    plans = {host: [frontend.target for frontend in seen] for host, seen in dialled.items()}
    callers = Callers(plans, folder, -(-count // len(CLIENTS)), seed)
    node_ports = [kind.node_port for kind in SERVICES]
    began, syncs = time.monotonic(), 0
    with (
        Answering(map(lab.host, PODS), TARGET_PORTS),
        LiveNode(lab) as node,
        Witness(node.namespace, node_ports) as witness,
    ):
        node.apply(churn.objects())
        for name, timeline in timelines.items():
            timeline.note(began, churn.pools[name], time.monotonic())
        with callers:
            while callers.are_calling:
                name, slices = churn.step()
                begun = time.monotonic()
                node.apply(slices)
                timelines[name].note(begun, churn.pools[name], time.monotonic())
                syncs += 1
        untranslated = witness.untranslated
    judge = Judge(timelines)
    for host, seen in dialled.items():
        for call in callers.calls(host):
            judge.hear(seen[call.target], call)
    return Round(syncs, judge.seen, judge.answered, judge.faults, untranslated, time.monotonic() - began)
