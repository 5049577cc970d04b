"""A node under traffic whose cluster never rests, while a test does something to the cluster's servers."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.cluster.applier import Applier
from tests.cluster.changing import Changing
from tests.cluster.cluster import OWN_RANGE, Cluster
from tests.cluster.follower import Follower
from tests.cluster.fresh import wrong
from tests.cluster.marker import Marker
from tests.packets.churn import PODS, SERVICES, TARGET_PORTS
from tests.packets.frontends import CLIENTS, frontends
from tests.packets.judge import Judge
from tests.packets.killing import PAUSE, WITHOUT_END
from tests.packets.node import knft
from tests.packets.scenario import Scenario
from tests.packets.witness import Witness
from tests.support.lab import plan
from tests.support.lab.answering import Answering
from tests.support.lab.calls import Callers
from tests.support.lab.links import forget_flows
from tests.support.lab.topology import Lab

FLAGS = tuple(Scenario("", [], ()).arguments())
RANGES = (*OWN_RANGE.split(","), plan.SERVICES.ipv4, plan.SERVICES.ipv6)
ZONE = "zone-a"
_CHANGES = 20
"""So many changes at least before a test does something, and after it."""


class Played(NamedTuple):
    """What has come of it: faults of calls, packets that nobody translated, and facts that are wrong in the end."""

    answered: int
    faults: list[str]
    untranslated: int
    wrong: list[str]


class Stage:
    """The lab, a cluster, and one knft that follows it through all that the tests do."""

    def __init__(self, lab: Lab, cluster: Cluster, follower: Follower) -> None:
        """Have the API server hold the Node alone, and start knft."""
        self.lab, self.cluster, self.follower = lab, cluster, follower
        self.node = lab.host("node").namespace
        self.applier = Applier(cluster)
        self.applier.apply(Scenario("", [], ()).manifests())
        self.marker = Marker(cluster.api, self.node)
        # Callers dial from ports of their own, which nobody else may happen to have: the servers are on this node too.
        self.node.sysctl("net.ipv4.ip_local_port_range", "60001 65535")
        follower.use(*FLAGS, "--min-sync-period=0")
        follower.start()

    def until_in_force(self) -> None:
        """Return when everything that was written so far is in force."""
        self.marker.write(ZONE, RANGES)
        self.marker.wait(self.follower.check)

    def play(self, folder: Path, seed: int, disturb: Callable[[], None]) -> Played:
        """Do something while endpoints change and connections are made."""
        # What an earlier test has left would be endpoints that this one knows nothing of; and clients, of sticky
        # Services of the same names: where those are deleted and made again between two syncs, they are the same ones.
        self.applier.apply(Scenario("", [], ()).manifests())
        self.follower.stop()
        knft(self.node, "cleanup")
        self.follower.start()
        changing = Changing(self.cluster.api, Random(seed))  # noqa: S311 - to be had again
        self.until_in_force()
        # Callers use their ports again, and a flow of UDP leads where it led.
        forget_flows(self.node)
        dialled = {self.lab.host(client): frontends(client) for client in CLIENTS}
        plans = {host: [frontend.target for frontend in seen] for host, seen in dialled.items()}
        callers = Callers(plans, folder, WITHOUT_END, seed, pause=PAUSE)
        with (
            Answering(map(self.lab.host, PODS), TARGET_PORTS),
            Witness(self.node, [kind.node_port for kind in SERVICES]) as witness,
            callers,
        ):
            with changing.going_on():
                changing.until_written(_CHANGES)
                disturb()
                changing.until_written(_CHANGES)
            self.until_in_force()
            untranslated = witness.untranslated
        judge = Judge(changing.timelines)
        for host, seen in dialled.items():
            for call in callers.calls(host):
                judge.hear(seen[call.target], call)
        return Played(judge.answered.total(), judge.faults, untranslated, wrong(self.cluster, folder, FLAGS))
