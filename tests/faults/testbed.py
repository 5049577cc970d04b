"""The cluster of the test with its servers and client pods, and the waits that the faults need."""

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from deploy.cluster import objects as cluster_objects
from deploy.cluster.cluster import Cluster
from deploy.cluster.keys import ADMIN
from deploy.cluster.machine import Machine
from deploy.programs.errors import SetupError
from tests.faults import objects
from tests.faults.objects import CLIENT, HTTP_PORT, NAMESPACE, PROBE, WEB
from tests.support.waiting import wait_until

SECONDS = 3600.0
"""How long to wait for the cluster. Nothing is measured by it."""
SYSTEM = "kube-system"
_REPLICAS = 6
_DIAL = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


class Testbed:
    """A running cluster of three nodes with servers and client pods."""

    # Otherwise pytest takes it for a class of tests.
    __test__ = False

    def __init__(self, cluster: Cluster) -> None:
        """Create nothing yet."""
        self.cluster = cluster
        self.first, self.changed, self.last = cluster.nodes
        """Clients use the first and the last node; the one in between may be removed."""
        self.killed: dict[str, float] = {}
        """When pods died of which the API server does not know it."""

    @property
    def kubectl_command(self) -> list[str]:
        """The beginning of a command of kubectl."""
        kubectl = [self.cluster.programs.path("kubectl"), f"--kubeconfig={self.cluster.keys.kubeconfig(ADMIN)}"]
        return self.cluster.control_plane.machine.network_command(*kubectl)

    def kubectl(self, *arguments: str, namespace: str = NAMESPACE, stdin: str = "") -> str:
        """Run kubectl in a namespace; return its output. Raise SetupError if it fails."""
        return self.cluster.kubectl(*arguments, f"--namespace={namespace}", stdin=stdin)

    def apply(self, items: Iterable[dict[str, Any]]) -> None:
        """Create or change objects."""
        # The namespace of the command would have to be that of each object.
        self.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(cluster_objects.list_of(iter(items))))

    def get(self, *arguments: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        """Return an object, or a list of objects."""
        return dict(json.loads(self.kubectl("get", *arguments, "--output=json", namespace=namespace)))

    def set_up(self) -> None:
        """Create the servers and client pods, and wait until they are ready."""
        names = [self.first.plan.name, self.last.plan.name]
        self.apply([objects.namespace()])
        # Without it, a pod that no controller creates again is refused.
        self.kubectl("wait", "--for=create", "serviceaccount/default", f"--timeout={SECONDS:.0f}s")
        self.apply([*objects.servers(WEB, _REPLICAS), objects.probes(), *objects.client_pods(names)])
        self.wait_for_rollout(f"deployment/{WEB}", f"daemonset/{PROBE}")
        for name in names:
            self.kubectl("wait", "--for=condition=Ready", f"pod/{CLIENT}-{name}", f"--timeout={SECONDS:.0f}s")

    def wait_for_rollout(self, *workloads: str, namespace: str = NAMESPACE) -> None:
        """Wait until the pods of workloads are ready, and as their templates say."""
        for workload in workloads:
            self.kubectl("rollout", "status", workload, f"--timeout={SECONDS:.0f}s", namespace=namespace)

    def roll(self, workload: str) -> None:
        """Replace all pods of a workload, and wait until that is done."""
        self.kubectl("rollout", "restart", workload)
        self.wait_for_rollout(workload)

    def wait_until_nodes_work(self) -> None:
        """Wait until all nodes are ready, and each has replaced a pod."""
        self.cluster.wait_for_nodes()
        self.roll(f"daemonset/{PROBE}")

    def wait_until_followed(self) -> None:
        """Create a Service, wait until each node reaches it, and delete it: then all Service proxies follow the API."""
        self.apply([objects.service("marker", WEB)])
        for address in self.get("service", "marker")["spec"]["clusterIPs"]:
            for node in self.cluster.nodes:
                what = f"{node.plan.name} does not program a Service"
                wait_until(partial(_reaches, node.machine, address), what, timeout=SECONDS, interval=0.5)
        self.kubectl("delete", "service", "marker")

    def knft_pods(self) -> list[dict[str, Any]]:
        """Return knft's pods that are not being deleted."""
        found = self.get("pods", "--selector=k8s-app=knft", namespace=SYSTEM)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def wait_for_knft(self, former: Sequence[dict[str, Any]] = ()) -> None:
        """Wait until knft is ready on its nodes, in other containers than those of former pods."""
        old = set(map(_container_id, former))

        def are_replaced() -> bool:
            current = self.knft_pods()
            return len(current) >= len(former) and not old & set(map(_container_id, current))

        wait_until(are_replaced, "knft's containers are not replaced", timeout=SECONDS, interval=1.0)
        self.wait_for_rollout("daemonset/knft", namespace=SYSTEM)

    def pods_of_node(self, name: str) -> list[str]:
        """Return the names of the test's pods on a node."""
        items = self.get("pods", f"--field-selector=spec.nodeName={name}")["items"]
        return [pod["metadata"]["name"] for pod in items]


def _container_id(pod: dict[str, Any]) -> str:
    """Return what changes if the pod or its container is replaced."""
    (status,) = pod["status"].get("containerStatuses", [{}])
    return str(status.get("containerID") or pod["metadata"]["uid"])


def _reaches(machine: Machine, address: str) -> bool:
    try:
        machine.run(sys.executable, "-c", _DIAL, address, str(HTTP_PORT))
    except SetupError:
        return False
    return True
