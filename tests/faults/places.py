"""Where clients run, and the frontends that they use."""

from collections.abc import Mapping, Sequence

from deploy.cluster.node import Node
from tests.faults.objects import CLIENT, HTTP_PORT, NODE_PORTS, UDP_PORT, WEB
from tests.faults.records import ClientPlan, Target
from tests.faults.testbed import Testbed
from tests.faults.traffic import Place
from tests.support.processes import processes_of_pod

_PORTS = {"tcp": HTTP_PORT, "udp": UDP_PORT}


def places(testbed: Testbed, service: str = WEB) -> Mapping[str, Place]:
    """Return the places of the clients of a Service: two pods, a node, and outside the nodes."""
    addresses = testbed.get("service", service)["spec"]["clusterIPs"]
    cluster_ips = _targets("cluster IP", addresses, _PORTS)
    first, last = (
        _targets(f"NodePort of {node.plan.name}", node.plan.addresses, NODE_PORTS[service])
        for node in (testbed.first, testbed.last)
    )
    return {
        "pod-1": _place(_pid_of_client(testbed, testbed.first), cluster_ips, last),
        "pod-3": _place(_pid_of_client(testbed, testbed.last), cluster_ips),
        "node-1": _place(testbed.first.machine.pid, cluster_ips, first),
        "outside": _place(testbed.cluster.control_plane.machine.pid, first, last),
    }


def load_balancer_places(testbed: Testbed, addresses: Sequence[str]) -> Mapping[str, Place]:
    """Return the places of the clients of load balancer addresses."""
    targets = _targets("load balancer", addresses, _PORTS)
    return {
        "pod-1": _place(_pid_of_client(testbed, testbed.first), targets),
        "node-1": _place(testbed.first.machine.pid, targets),
        "outside": _place(testbed.cluster.control_plane.machine.pid, targets),
    }


def _targets(name: str, addresses: Sequence[str], ports: Mapping[str, int]) -> tuple[Target, ...]:
    return tuple(
        Target(f"{name} {address} {protocol}", address, port, protocol)
        for address in addresses
        for protocol, port in ports.items()
    )


def _place(pid: int, *targets: tuple[Target, ...]) -> Place:
    return Place(pid, ClientPlan(tuple(target for each in targets for target in each)))


def _pid_of_client(testbed: Testbed, node: Node) -> int:
    uid = testbed.get("pod", f"{CLIENT}-{node.plan.name}")["metadata"]["uid"]
    return next(processes_of_pod(uid))
