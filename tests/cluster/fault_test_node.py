"""A node under traffic, with endpoints that change all the time, while a test disturbs the cluster's servers."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.cluster.applier import Applier
from tests.cluster.background_changes import BackgroundChanges
from tests.cluster.cluster import API_SERVER_CIDRS, Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.expected_tables import table_differences
from tests.cluster.marker import Marker
from tests.support.knft_command import knft
from tests.support.lab import plan
from tests.support.lab.clients import ClientProcesses
from tests.support.lab.links import flush_conntrack
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.packets.churn import PODS, SERVICES, TARGET_PORTS
from tests.support.packets.connection_checks import ConnectionChecker
from tests.support.packets.frontends import CLIENTS, frontends
from tests.support.packets.kill_and_restart import ENDLESS, PAUSE
from tests.support.packets.untranslated_counter import UntranslatedCounter
from tests.support.scenario import Scenario

FLAGS = tuple(Scenario("", [], ()).arguments())
RANGES = (*API_SERVER_CIDRS.split(","), plan.SERVICES.ipv4, plan.SERVICES.ipv6)
ZONE = "zone-a"
_CHANGES = 20
"""The minimum number of changes before and after the disturbance."""


class FaultResult(NamedTuple):
    """The result: failed calls, packets that left the node untranslated, and differences in the tables at the end."""

    answered_calls: int
    failed_calls: list[str]
    untranslated_packets: int
    table_differences: list[str]


class FaultTestNode:
    """The lab, a cluster, and one knft process that watches it during all tests."""

    def __init__(self, lab: Lab, cluster: Cluster, daemon: ClusterKnft) -> None:
        """Make the API server hold the Node only, and start knft."""
        self.lab, self.cluster, self.daemon = lab, cluster, daemon
        self.node = lab.host("node").namespace
        self.applier = Applier(cluster)
        self.applier.apply(Scenario("", [], ()).manifests())
        self.marker = Marker(cluster.api, self.node)
        # Clients use fixed source ports, which the servers on this node must not take.
        self.node.sysctl("net.ipv4.ip_local_port_range", "60001 65535")
        daemon.set_flags(*FLAGS, "--min-sync-period=0")
        daemon.start()

    def wait_until_programmed(self) -> None:
        """Wait until everything that was written so far is programmed."""
        self.marker.write(ZONE, RANGES)
        self.marker.wait(self.daemon.check)

    def run_fault(self, folder: Path, seed: int, disturb: Callable[[], None]) -> FaultResult:
        """Call ``disturb`` while endpoints change and connections are made."""
        # An earlier test leaves endpoints that this one does not know, and remembered clients of sticky Services: a
        # Service that is deleted and created between two syncs keeps its remembered clients.
        self.applier.apply(Scenario("", [], ()).manifests())
        self.daemon.stop()
        knft(self.node, "cleanup")
        self.daemon.start()
        changes = BackgroundChanges(self.cluster.api, Random(seed))  # noqa: S311 - reproducible
        self.wait_until_programmed()
        # Clients reuse their source ports, and conntrack would send a UDP flow to its previous endpoint.
        flush_conntrack(self.node)
        frontends_by_host = {self.lab.host(client): frontends(client) for client in CLIENTS}
        plans = {
            host: [frontend.target for frontend in host_frontends] for host, host_frontends in frontends_by_host.items()
        }
        clients = ClientProcesses(plans, folder, ENDLESS, seed, pause=PAUSE)
        with (
            ResponderProcess(map(self.lab.host, PODS), TARGET_PORTS),
            UntranslatedCounter(self.node, [kind.node_port for kind in SERVICES]) as untranslated_counter,
            clients,
        ):
            with changes.running():
                changes.wait_for_changes(_CHANGES)
                disturb()
                changes.wait_for_changes(_CHANGES)
            self.wait_until_programmed()
            untranslated = untranslated_counter.packets
        checker = ConnectionChecker(changes.timelines)
        for host, known_frontends in frontends_by_host.items():
            for call in clients.connections(host):
                checker.check(known_frontends[call.target], call)
        return FaultResult(
            checker.answered.total(), checker.faults, untranslated, table_differences(self.cluster, folder, FLAGS)
        )
