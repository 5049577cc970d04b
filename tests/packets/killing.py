"""knft is killed at random moments and started again, while manifests change and connections are made."""

import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

from tests.packets.churn import PODS, SERVICES, TARGET_PORTS
from tests.packets.frontends import CLIENTS, frontends
from tests.packets.held import differences, held
from tests.packets.judge import Judge
from tests.packets.manifests import Manifests
from tests.packets.node import knft, sync_once
from tests.packets.running import FLAGS, Monitor, Running
from tests.packets.witness import Witness
from tests.support.lab.answering import Answering
from tests.support.lab.calls import Callers
from tests.support.lab.links import forget_flows
from tests.support.lab.namespace import Namespace
from tests.support.lab.topology import Lab

LONGEST = 3.0
"""Seconds that a life lasts at most, so that many end while knft starts, or compares everything."""
WITHOUT_END = 10**8
PAUSE = 0.001
"""Seconds after each call: 40 000 of them take longer than a flow of UDP is remembered."""


class Killed(NamedTuple):
    """What has come of it."""

    kills: int
    full_syncs: int
    """In those lives: fewer than two for each that ended before it had compared everything."""
    seen: Counter[str]
    answered: int
    faults: list[str]
    untranslated: int
    restart: list[str]
    """What the last start said of its comparisons, on an unchanged cluster."""
    changes: list[str]
    """What that start changed in the kernel."""
    wrong: list[str]
    """Where the tables were not in the end what a fresh process makes of the same manifests."""

    def __str__(self) -> str:
        """Return the figures."""
        figures = ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))
        return (
            f"{self.kills} kills, {self.full_syncs} full syncs, {self.answered} connections answered, {figures}, "
            f"{self.untranslated} packets untranslated, {len(self.faults)} faults, {len(self.changes)} changes at the "
            f"last start, {len(self.wrong)} facts wrong"
        )


def play(lab: Lab, folder: Path, kills: int, seed: int) -> Killed:
    """Kill knft so often in a lab with a crowd; manifests and logs go to ``folder``."""
    node, cluster = lab.host("node").namespace, folder / "manifests"
    cluster.mkdir()
    manifests = Manifests(cluster, Random(seed))  # noqa: S311 - to be had again
    dialled = {lab.host(client): frontends(client) for client in CLIENTS}
    plans = {host: [frontend.target for frontend in seen] for host, seen in dialled.items()}
    callers = Callers(plans, folder, WITHOUT_END, seed, pause=PAUSE)
    forget_flows(node)
    with Lives(node, cluster, folder) as lives:
        with (
            Answering(map(lab.host, PODS), TARGET_PORTS),
            Witness(node, [kind.node_port for kind in SERVICES]) as witness,
            callers,
        ):
            with manifests.changing():
                full_syncs = lives.end_at_random(kills, Random(seed))  # noqa: S311
            _settle(lives.now, manifests)
            untranslated = witness.untranslated
        lives.now.kill()
        restart, changes = _restarted(lives, node, folder)
    judge = Judge(manifests.timelines)
    for host, seen in dialled.items():
        for call in callers.calls(host):
            judge.hear(seen[call.target], call)
    answered, wrong = judge.answered.total(), _wrong(node, cluster)
    return Killed(kills, full_syncs, judge.seen, answered, judge.faults, untranslated, restart, changes, wrong)


class Lives:
    """One ``knft run`` after the other, each from the moment that the one before it is killed; a context manager."""

    def __init__(self, node: Namespace, manifests: Path, folder: Path) -> None:
        """Prepare without any."""
        self._node, self._manifests, self._folder = node, manifests, folder

    def __enter__(self) -> Self:
        """Start the first; its rules are in force when this returns."""
        self.start()
        self.now.until_in_force()
        return self

    def __exit__(self, *_: object) -> None:
        """End the last."""
        self.now.kill()

    def start(self) -> None:
        """Start another."""
        self.now = Running(self._node, self._manifests, self._folder / "log")

    def end_at_random(self, kills: int, chance: Random) -> int:
        """End so many, and start the next; return how many full syncs there were in those that ended."""
        full_syncs = 0
        for _ in range(kills):
            time.sleep(chance.uniform(0, LONGEST))
            self.now.kill()
            full_syncs += self.now.said().count("full sync")
            self.start()
        return full_syncs


def _settle(life: Running, manifests: Manifests) -> None:
    """Have everything deleted that waits for it: emptied chains go with a sync that comes a second later."""
    life.until_in_force()
    for number in (90, 91):
        life.until_quiet()
        life.until_synced_again(partial(manifests.nudge, number))
    life.until_quiet()


def _restarted(lives: Lives, node: Namespace, folder: Path) -> tuple[list[str], list[str]]:
    """Start knft once more, where nothing has changed; return what it says of that, and what changes by that."""
    with Monitor(node, folder / "monitor") as monitor:
        lives.start()
        restart = lives.now.until_in_force()
        lives.now.until_quiet()
    return restart, monitor.changes()


def _wrong(node: Namespace, manifests: Path) -> list[str]:
    """Return where the tables are not what a fresh process makes; they are gone afterwards, as are all flows."""
    found = held(node)
    knft(node, "cleanup")
    sync_once(node, manifests, *FLAGS[2:])
    expected = held(node)
    knft(node, "cleanup")
    forget_flows(node)
    assert found.keys() == expected.keys()
    return [line for family in expected for line in differences(expected[family], found[family])]
