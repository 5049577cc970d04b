"""The node under test with knft's stages in this process, and the objects that a test changes step by step."""

import time
from collections.abc import Sequence
from typing import Any, Self

from knft.config import Config
from knft.families import Family
from knft.sync.invalidation import Invalidation
from knft.sync.report import SyncReport
from tests.support.kernel_harness import CONFIG, KernelHarness
from tests.support.knft_command import remove_tables
from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack
from tests.support.lab.topology import Lab
from tests.support.scenario import DEFAULT_NODE, Scenario

EVERY = 1000


class ProgrammedNode:
    """The node under test; a context manager that removes the rules at the end."""

    def __init__(
        self, lab: Lab, config: Config = CONFIG, node: dict[str, Any] | None = None, host: str = plan.NODE.host
    ) -> None:
        """Take the lab; there is no object but ``node``, the Node. The rules are in force on ``host``."""
        self.lab = lab
        self.namespace = lab.host(host).namespace
        self.clock_offset = 0.0
        """Seconds by which the clock of knft's stages is ahead of the system clock."""
        self._config = config
        self._node = DEFAULT_NODE if node is None else node

    def __enter__(self) -> Self:
        """Start both families in the node's namespace."""
        flush_conntrack(self.namespace)
        self._harness = self._new_process()
        self.apply([])
        return self

    def __exit__(self, *_: object) -> None:
        """Remove knft's tables."""
        remove_tables(self.namespace)

    def _new_process(self) -> KernelHarness:
        with self.namespace.entered():
            return KernelHarness(self.namespace, self._config, lambda: time.perf_counter() + self.clock_offset)

    @property
    def objects(self) -> tuple[Any, ...]:
        """All objects, as knft's stages have them."""
        return tuple(self._harness.objects.values())

    def apply(self, objects: Sequence[dict[str, Any]]) -> dict[Family, SyncReport]:
        """Add or change objects, which are written as in scenarios, and sync."""
        self._deliver(objects)
        with self.namespace.entered():
            return self._harness.sync()

    def apply_node(self, node: dict[str, Any]) -> None:
        """Change the Node, and sync."""
        self._node = node
        self.apply([])

    def apply_refused(self, objects: Sequence[dict[str, Any]]) -> None:
        """Add or change objects, and have the kernel refuse the commit in both families."""
        self._deliver(objects)
        ports = self._harness.checked_tables.values()
        for port in ports:
            port.refused_commits = EVERY
        with self.namespace.entered():
            assert not self._harness.daemon.sync()
        for port in ports:
            port.refused_commits = 0

    def invalidate(self) -> None:
        """Have the next sync compare the whole table with the kernel's."""
        for proxier in self._harness.proxiers.values():
            proxier.invalidate(Invalidation())

    def restart(self, objects: Sequence[dict[str, Any]]) -> None:
        """Continue as a new process, which receives all objects at once; ``objects`` are changed."""
        objects_so_far = self._harness.objects
        self._harness = self._new_process()
        self._harness.change((kind, name, item) for (kind, name), item in objects_so_far.items())
        self.apply(objects)

    def _deliver(self, objects: Sequence[dict[str, Any]]) -> None:
        self._harness.apply(*Scenario("", list(objects), (), node=self._node).manifests())


def service(name: str, number: int, *ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a Service with the cluster IP ``$cluster.number``."""
    kind = {"type": "NodePort"} if any("nodePort" in port for port in ports) else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": f"$cluster.{number}", "ports": list(ports), **kind, **spec},
    }


def with_load_balancer(item: dict[str, Any], *vips: str) -> dict[str, Any]:
    """Return a Service with load balancer IPs."""
    ingress = [{"ip": vip} for vip in vips]
    return {**item, "spec": {**item["spec"], "type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": ingress}}}


def endpoints(name: str, *pods: str, **ports: int) -> dict[str, Any]:
    """Return the EndpointSlice of a Service: TCP and UDP ports by name, on these pods or nodes of the lab."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "ports": [
            {"name": f"{port}-{protocol.lower()}", "port": number, "protocol": protocol}
            for port, number in ports.items()
            for protocol in ("TCP", "UDP")
        ],
        "endpoints": [
            {"addresses": [f"${pod}"], "nodeName": "node-2" if pod.startswith("remote") else "node-1"} for pod in pods
        ],
    }


def tcp_and_udp(name: str, number: int, node_port: int = 0) -> list[dict[str, Any]]:
    """Return a port of a Service, once for TCP and once for UDP."""
    extra = {"nodePort": node_port} if node_port else {}
    return [
        {"name": f"{name}-{protocol.lower()}", "port": number, "protocol": protocol, **extra}
        for protocol in ("TCP", "UDP")
    ]
