"""Applies scenarios through the API server, with one knft process for as long as its flags stay the same."""

from pathlib import Path
from typing import Any

from tests.cluster.applier import Applier
from tests.cluster.cluster import API_SERVER_CIDRS, Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.desired import desired_objects
from tests.cluster.marker import Marker
from tests.cluster.service_account import ServiceAccount
from tests.support.lab.namespace import Namespace
from tests.support.packets.modes import Nftables
from tests.support.scenario import Scenario

_ZONE = "topology.kubernetes.io/zone"


class ApiServerMode(Nftables):
    """``knft run`` without ``--manifests``; its rules stay until another scenario replaces them."""

    def __init__(self, cluster: Cluster, account: ServiceAccount, folder: Path) -> None:
        """Start nothing yet; knft starts with the first scenario."""
        self.applier = Applier(cluster)
        self.daemon = ClusterKnft(cluster, account, folder)
        self._marker = Marker(cluster.api, cluster.namespace)
        self._process_inputs: list[Any] = []
        self.starts = 0
        """How often knft was started."""

    def apply(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:  # noqa: ARG002 - Mode's
        objects = scenario.earlier_manifests() if earlier else scenario.manifests()
        # Flags and the Node, except its zone, are read at the start only: a new process takes over if they differ.
        inputs = [scenario.arguments(), scenario.node.get("spec"), scenario.node.get("status")]
        if inputs != self._process_inputs and self.daemon.is_running:
            assert self.daemon.stop() == 0, self.daemon.tail()
        has_range = "--service-cidr=" not in scenario.flags
        self.applier.apply(objects, with_service_cidr=has_range)
        self._marker.write(scenario.node["metadata"].get("labels", {}).get(_ZONE, ""), _ranges(scenario, objects))
        if not self.daemon.is_running:
            self.daemon.set_flags(*scenario.arguments(), "--min-sync-period=0", "--allow-node-mismatch")
            self.daemon.start()
            self._process_inputs = inputs
            self.starts += 1
        self._marker.wait(self.daemon.check)

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:
        """Do nothing: the next scenario replaces the rules."""

    def close(self) -> None:
        """Kill knft; its tables stay."""
        self.daemon.close()


def _ranges(scenario: Scenario, objects: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the service CIDRs that knft uses: those of its flag and of ServiceCIDRs."""
    given = [flag.partition("=")[2] for flag in scenario.arguments() if flag.startswith("--service-cidr=")]
    wanted = desired_objects(objects, with_service_cidr=given != [""])
    cidrs = [cidr for one in wanted.values() if one.item["kind"] == "ServiceCIDR" for cidr in one.item["spec"]["cidrs"]]
    own = API_SERVER_CIDRS.split(",")
    return tuple(dict.fromkeys(item for item in [*own, *cidrs, *",".join(given).split(",")] if item))
