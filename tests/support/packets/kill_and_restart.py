"""knft is killed and restarted at random times, while manifests change and clients connect."""

import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

from tests.support.knft_command import knft, sync_once
from tests.support.lab.clients import ClientProcesses
from tests.support.lab.links import flush_conntrack
from tests.support.lab.namespace import Namespace
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.packets.changing_manifests import ChangingManifests
from tests.support.packets.churn import PODS, SERVICES, TARGET_PORTS
from tests.support.packets.connection_checks import ConnectionChecker
from tests.support.packets.frontends import CLIENTS, frontends
from tests.support.packets.manifest_knft import FLAGS, ManifestKnft, NftMonitor
from tests.support.packets.table_facts import differences, table_facts
from tests.support.packets.untranslated_counter import UntranslatedCounter

MAX_LIFETIME = 3.0
"""Longest lifetime of a process in seconds: many are killed while they start or compare the kernel's table."""
ENDLESS = 10**8
PAUSE = 0.001
"""Seconds after each connection: 40 000 of them take longer than conntrack keeps a UDP entry."""


class KillResult(NamedTuple):
    """The result of a run."""

    kills: int
    full_syncs: int
    """Full syncs of the killed processes: two for each that lived until both families were compared."""
    seen: Counter[str]
    answered: int
    faults: list[str]
    untranslated: int
    restart: list[str]
    """Log lines of the last start's full syncs, on an unchanged cluster."""
    changes: list[str]
    """The kernel's changes during that start."""
    table_differences: list[str]
    """Differences between the final tables and those that a new process writes for the same manifests."""

    def __str__(self) -> str:
        """Return the figures."""
        figures = ", ".join(f"{count} {what}" for what, count in sorted(self.seen.items()))
        return (
            f"{self.kills} kills, {self.full_syncs} full syncs, {self.answered} connections answered, {figures}, "
            f"{self.untranslated} packets untranslated, {len(self.faults)} faults, {len(self.changes)} changes at the "
            f"last start, {len(self.table_differences)} table differences"
        )


def run_kills(lab: Lab, folder: Path, kills: int, seed: int, *, pause: float = PAUSE) -> KillResult:
    """Kill knft ``kills`` times in a lab with many client addresses; manifests and logs are written to ``folder``.

    ``pause`` is the time in seconds after each connection.
    """
    node, cluster = lab.host("node").namespace, folder / "manifests"
    cluster.mkdir()
    manifests = ChangingManifests(cluster, Random(seed))  # noqa: S311 - reproducible
    client_frontends = {lab.host(client): frontends(client) for client in CLIENTS}
    plans = {host: [frontend.target for frontend in seen] for host, seen in client_frontends.items()}
    clients = ClientProcesses(plans, folder, ENDLESS, seed, pause=pause)
    flush_conntrack(node)
    with RestartedKnft(node, cluster, folder) as restarted:
        with (
            ResponderProcess(map(lab.host, PODS), TARGET_PORTS),
            UntranslatedCounter(node, [service.node_port for service in SERVICES]) as counter,
            clients,
        ):
            with manifests.changing():
                full_syncs = restarted.kill_at_random_times(kills, Random(seed))  # noqa: S311
            _settle(restarted.process, manifests)
            untranslated = counter.packets
        restarted.process.kill()
        restart, changes = _restart_unchanged(restarted, node, folder)
    checker = ConnectionChecker(manifests.timelines)
    for host, seen in client_frontends.items():
        for connection in clients.connections(host):
            checker.check(seen[connection.target], connection)
    answered, table_differences = checker.answered.total(), _table_differences(node, cluster)
    return KillResult(
        kills, full_syncs, checker.seen, answered, checker.faults, untranslated, restart, changes, table_differences
    )


class RestartedKnft:
    """``knft run``, restarted each time it is killed; a context manager."""

    def __init__(self, node: Namespace, manifests: Path, folder: Path) -> None:
        """Take the paths; nothing is started yet."""
        self._node, self._manifests, self._folder = node, manifests, folder

    def __enter__(self) -> Self:
        """Start the first process; its rules are loaded when this returns."""
        self.start()
        self.process.wait_for_full_syncs()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the last process."""
        self.process.kill()

    def start(self) -> None:
        """Start a new process."""
        self.process = ManifestKnft(self._node, self._manifests, self._folder / "log")

    def kill_at_random_times(self, kills: int, rng: Random) -> int:
        """Kill and restart ``kills`` processes; return the number of full syncs of the killed ones."""
        full_syncs = 0
        for _ in range(kills):
            time.sleep(rng.uniform(0, MAX_LIFETIME))
            self.process.kill()
            full_syncs += self.process.log_text().count("full sync")
            self.start()
        return full_syncs


def _settle(process: ManifestKnft, manifests: ChangingManifests) -> None:
    """Sync until nothing is left to delete: emptied chains are deleted with a sync at least a second later."""
    process.wait_for_full_syncs()
    for number in (90, 91):
        process.wait_until_idle()
        process.sync_after(partial(manifests.write_unrelated_service, number))
    process.wait_until_idle()


def _restart_unchanged(restarted: RestartedKnft, node: Namespace, folder: Path) -> tuple[list[str], list[str]]:
    """Start knft again on an unchanged cluster; return its full sync log lines, and what changed in the kernel."""
    with NftMonitor(node, folder / "monitor") as monitor:
        restarted.start()
        restart = restarted.process.wait_for_full_syncs()
        restarted.process.wait_until_idle()
    return restart, monitor.changes()


def _table_differences(node: Namespace, manifests: Path) -> list[str]:
    """Return how the tables differ from those of a new process; they and all conntrack entries are removed."""
    actual = table_facts(node)
    knft(node, "cleanup")
    sync_once(node, manifests, *FLAGS[2:])
    expected = table_facts(node)
    knft(node, "cleanup")
    flush_conntrack(node)
    assert actual.keys() == expected.keys()
    return [line for family in expected for line in differences(expected[family], actual[family])]
