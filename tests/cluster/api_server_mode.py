"""A scenario in force through the API server, by one knft that lives on where its flags allow it."""

from pathlib import Path
from typing import Any

from tests.cluster.applier import Applier
from tests.cluster.cluster import OWN_RANGE, Cluster
from tests.cluster.desired import desired_objects
from tests.cluster.knft_process import KnftProcess
from tests.cluster.marker import Marker
from tests.cluster.service_account import ServiceAccount
from tests.packets.modes import Nftables
from tests.support.lab.namespace import Namespace
from tests.support.scenario import Scenario

_ZONE = "topology.kubernetes.io/zone"


class ApiServerMode(Nftables):
    """``knft run`` without ``--manifests``; what is in force stays until another scenario replaces it."""

    def __init__(self, cluster: Cluster, account: ServiceAccount, folder: Path) -> None:
        """Prepare; knft starts with the first scenario."""
        self.applier = Applier(cluster)
        self.follower = KnftProcess(cluster, account, folder)
        self._marker = Marker(cluster.api, cluster.namespace)
        self._told: list[Any] = []
        self.starts = 0
        """How often knft was started."""

    def program(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:  # noqa: ARG002 - Mode's
        objects = scenario.earlier_manifests() if earlier else scenario.manifests()
        # What a process is told at its start, and of its node but for the zone: another one takes over.
        told = [scenario.arguments(), scenario.node.get("spec"), scenario.node.get("status")]
        if told != self._told and self.follower.is_running:
            assert self.follower.stop() == 0, self.follower.tail()
        has_range = "--service-cidr=" not in scenario.flags
        self.applier.apply(objects, with_range=has_range)
        self._marker.write(scenario.node["metadata"].get("labels", {}).get(_ZONE, ""), _ranges(scenario, objects))
        if not self.follower.is_running:
            self.follower.set_flags(*scenario.arguments(), "--min-sync-period=0")
            self.follower.start()
            self._told = told
            self.starts += 1
        self._marker.wait(self.follower.check)

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:
        """Leave everything: the next scenario takes over from here."""

    def close(self) -> None:
        """End knft; its tables stay."""
        self.follower.close()


def _ranges(scenario: Scenario, objects: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the ranges that knft is to know: its flag's, and those of ServiceCIDRs, one inside another left out."""
    given = [flag.partition("=")[2] for flag in scenario.arguments() if flag.startswith("--service-cidr=")]
    wanted = desired_objects(objects, with_range=given != [""])
    cidrs = [cidr for one in wanted.values() if one.item["kind"] == "ServiceCIDR" for cidr in one.item["spec"]["cidrs"]]
    own = OWN_RANGE.split(",")
    return tuple(dict.fromkeys(item for item in [*own, *cidrs, *",".join(given).split(",")] if item))
