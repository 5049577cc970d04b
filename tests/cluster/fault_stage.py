"""A node under traffic whose cluster never rests, while a test does something to the cluster's servers."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.cluster.applier import Applier
from tests.cluster.background_changes import BackgroundChanges
from tests.cluster.cluster import OWN_RANGE, Cluster
from tests.cluster.expected_tables import table_differences
from tests.cluster.knft_process import KnftProcess
from tests.cluster.marker import Marker
from tests.packets.churn import PODS, SERVICES, TARGET_PORTS
from tests.packets.connection_checks import ConnectionChecker
from tests.packets.frontends import CLIENTS, frontends
from tests.packets.kill_and_restart import ENDLESS, PAUSE
from tests.packets.untranslated_counter import UntranslatedCounter
from tests.support.knft_command import knft
from tests.support.lab import plan
from tests.support.lab.clients import ClientProcesses
from tests.support.lab.links import flush_conntrack
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.scenario import Scenario

FLAGS = tuple(Scenario("", [], ()).arguments())
RANGES = (*OWN_RANGE.split(","), plan.SERVICES.ipv4, plan.SERVICES.ipv6)
ZONE = "zone-a"
_CHANGES = 20
"""So many changes at least before a test does something, and after it."""


class FaultResult(NamedTuple):
    """What has come of it: faults of calls, packets that nobody translated, and facts that are wrong in the end."""

    answered_calls: int
    failed_calls: list[str]
    untranslated_packets: int
    table_differences: list[str]


class FaultStage:
    """The lab, a cluster, and one knft that follows it through all that the tests do."""

    def __init__(self, lab: Lab, cluster: Cluster, follower: KnftProcess) -> None:
        """Have the API server hold the Node alone, and start knft."""
        self.lab, self.cluster, self.follower = lab, cluster, follower
        self.node = lab.host("node").namespace
        self.applier = Applier(cluster)
        self.applier.apply(Scenario("", [], ()).manifests())
        self.marker = Marker(cluster.api, self.node)
        # Callers dial from ports of their own, which nobody else may happen to have: the servers are on this node too.
        self.node.sysctl("net.ipv4.ip_local_port_range", "60001 65535")
        follower.set_flags(*FLAGS, "--min-sync-period=0")
        follower.start()

    def wait_programmed(self) -> None:
        """Return when everything that was written so far is in force."""
        self.marker.write(ZONE, RANGES)
        self.marker.wait(self.follower.check)

    def run_fault(self, folder: Path, seed: int, disturb: Callable[[], None]) -> FaultResult:
        """Do something while endpoints change and connections are made."""
        # What an earlier test has left would be endpoints that this one knows nothing of; and clients, of sticky
        # Services of the same names: where those are deleted and made again between two syncs, they are the same ones.
        self.applier.apply(Scenario("", [], ()).manifests())
        self.follower.stop()
        knft(self.node, "cleanup")
        self.follower.start()
        changing = BackgroundChanges(self.cluster.api, Random(seed))  # noqa: S311 - to be had again
        self.wait_programmed()
        # Callers use their ports again, and a flow of UDP leads where it led.
        flush_conntrack(self.node)
        dialled = {self.lab.host(client): frontends(client) for client in CLIENTS}
        plans = {host: [frontend.target for frontend in seen] for host, seen in dialled.items()}
        callers = ClientProcesses(plans, folder, ENDLESS, seed, pause=PAUSE)
        with (
            ResponderProcess(map(self.lab.host, PODS), TARGET_PORTS),
            UntranslatedCounter(self.node, [kind.node_port for kind in SERVICES]) as witness,
            callers,
        ):
            with changing.running():
                changing.wait_for_changes(_CHANGES)
                disturb()
                changing.wait_for_changes(_CHANGES)
            self.wait_programmed()
            untranslated = witness.packets
        judge = ConnectionChecker(changing.timelines)
        for host, seen in dialled.items():
            for call in callers.connections(host):
                judge.check(seen[call.target], call)
        return FaultResult(
            judge.answered.total(), judge.faults, untranslated, table_differences(self.cluster, folder, FLAGS)
        )
