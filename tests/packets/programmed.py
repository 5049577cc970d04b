"""A cluster in the lab that the test changes as it goes: knft's own stages, in this process, on the node's kernel."""

from collections.abc import Sequence
from typing import Any, Self

from knft.model.names import Family
from knft.sync.report import SyncReport
from tests.kernel.harness import KernelHarness
from tests.lab.links import forget_flows
from tests.lab.topology import Lab
from tests.packets.node import knft
from tests.packets.scenario import Scenario


class ProgrammedNode:
    """The node under test; a context manager that takes its rules away at the end."""

    def __init__(self, lab: Lab) -> None:
        """Prepare without objects."""
        self.lab = lab
        self.namespace = lab.host("node").namespace

    def __enter__(self) -> Self:
        """Start both families, in the node's namespace."""
        forget_flows(self.namespace)
        with self.namespace.entered():
            self._harness = KernelHarness(self.namespace)
        self.apply([])
        return self

    def __exit__(self, *_: object) -> None:
        """Remove knft's tables."""
        knft(self.namespace, "cleanup")

    def apply(self, objects: Sequence[dict[str, Any]]) -> dict[Family, SyncReport]:
        """Make or change objects, which are written as in scenarios, and sync."""
        with self.namespace.entered():
            self._harness.apply(*Scenario("", list(objects), ()).manifests())
            return self._harness.sync()


def service(name: str, number: int, *ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a Service with the cluster IP ``$cluster.number``."""
    kind = {"type": "NodePort"} if any("nodePort" in port for port in ports) else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": f"$cluster.{number}", "ports": list(ports), **kind, **spec},
    }


def endpoints(name: str, *pods: str, **ports: int) -> dict[str, Any]:
    """Return the slice of a Service: TCP and UDP ports by name, on these pods of the lab."""
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
            {"addresses": [f"${pod}"], "nodeName": "node-1" if pod.startswith("local") else "node-2"} for pod in pods
        ],
    }


def both_protocols(name: str, number: int, node_port: int = 0) -> list[dict[str, Any]]:
    """Return a port of a Service, once for TCP and once for UDP."""
    extra = {"nodePort": node_port} if node_port else {}
    return [
        {"name": f"{name}-{protocol.lower()}", "port": number, "protocol": protocol, **extra}
        for protocol in ("TCP", "UDP")
    ]
