"""The lab: the hosts of ``plan``, built from namespaces, bridges and veth pairs.

::

    with Lab() as lab:
        client, node = lab.host("outside"), lab.host("node")
        node.namespace.run(["nft", "-f", "-"], stdin=rules)
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from tests.support.lab import sysctls
from tests.support.lab.links import Netlink, netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import (
    BLACKHOLE_GATEWAY,
    NODE,
    NODES,
    OUTSIDE,
    REMOTE,
    ROUTED_TO_NODE,
    SECOND_OUTSIDE,
    Addresses,
    NodePlan,
    Version,
)

_LAN_MAC = "02:00:00:00:00:01"
_POD_BRIDGE_MAC = "02:00:00:00:00:02"
_POD_BRIDGE = "cni0"
_DEFAULT = Addresses("0.0.0.0/0", "::/0")


@dataclass(frozen=True, slots=True)
class Host:
    """A node, a pod or a client, with its addresses."""

    name: str
    namespace: Namespace
    ipv4: str
    ipv6: str
    node: str | None
    """The Kubernetes name of the node, or of the pod's node; None outside the cluster."""

    def address(self, version: Version) -> str:
        """Return its address of that family."""
        return Addresses(self.ipv4, self.ipv6).of(version)


class Lab:
    """The node under test and the hosts around it; a context manager, which builds and removes them."""

    def __init__(self, *, local_pods: int = 4, remote_pods: int = 8) -> None:
        """Take the numbers of pods; nothing is built yet."""
        self._first_pods = {NODE.host: local_pods, REMOTE.host: remote_pods}
        self._hosts: dict[str, Host] = {}
        self._pods_made = {NODE.host: 0, REMOTE.host: 0}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Build all hosts; they can send and receive packets when this returns."""
        with ExitStack() as built:
            built.callback(self.close)
            self._build()
            built.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove all hosts."""
        self.close()

    def close(self) -> None:
        """Close every namespace; the kernel removes those without a socket and a process."""
        self._hosts.clear()
        self._open.close()

    def host(self, name: str) -> Host:
        """Return a host: ``node``, ``remote``, ``outside``, or a pod such as ``local-1``."""
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        """Iterate over all hosts."""
        return iter(tuple(self._hosts.values()))

    def pods(self, node: str) -> tuple[Host, ...]:
        """Return the pods on ``node`` or ``remote``, in the order in which they were added."""
        plan = _plan_of(node)
        return tuple(host for host in self if host.node == plan.node_name and host.name != plan.host)

    def add_pod(self, node: str) -> Host:
        """Add one more pod on ``node`` or ``remote`` and return it."""
        return self._add_pods(_plan_of(node), 1)[0]

    def remove_pod(self, name: str) -> None:
        """Delete a pod; its name and addresses are not used again."""
        pod = self._hosts.pop(name)
        plan = next(plan for plan in NODES if plan.node_name == pod.node)
        with netlink(self.host(plan.host).namespace) as node:
            node.delete(_port(name))
        pod.namespace.close()

    def _build(self) -> None:
        lan = self._namespace("lan", sysctls.LAN)
        outside = self._namespace("outside", sysctls.HOST)
        self._register("outside", outside, OUTSIDE, node=None)
        for plan in NODES:
            namespace = self._namespace(plan.host, sysctls.NODE)
            self._register(plan.host, namespace, plan.lan, plan.node_name)
        with netlink(lan) as link:
            _build_lan(link, [self.host(name) for name in ("outside", NODE.host, REMOTE.host)])
        with netlink(outside) as link:
            _connect_outside(link)
        for plan, other in ((NODE, REMOTE), (REMOTE, NODE)):
            with netlink(self.host(plan.host).namespace) as link:
                _connect_node(link, plan, other)
            self._add_pods(plan, self._first_pods[plan.host])
        with netlink(lan) as link:
            link.wait_for_ports(map(_port, ("outside", NODE.host, REMOTE.host)))
            link.wait_for_neighbor_discovery("lan0")
        for name in ("outside", NODE.host, REMOTE.host):
            with netlink(self.host(name).namespace) as link:
                link.wait_for_neighbor_discovery("eth0")

    def _add_pods(self, plan: NodePlan, count: int) -> list[Host]:
        first = self._pods_made[plan.host] + 1
        self._pods_made[plan.host] += count
        pods = [self._new_pod(plan, number) for number in range(first, first + count)]
        ports = [_port(pod.name) for pod in pods]
        node = self.host(plan.host).namespace
        with netlink(node) as link:
            for pod, port in zip(pods, ports, strict=True):
                link.add_veth(port, _POD_BRIDGE, pod.namespace)
                link.allow_hairpin(port)
        for pod in pods:
            with netlink(pod.namespace) as link:
                _connect_pod(link, plan, Addresses(pod.ipv4, pod.ipv6))
        with netlink(node) as link:
            link.wait_for_ports(ports)
            if ports:
                link.wait_for_neighbor_discovery(_POD_BRIDGE)
        for pod in pods:
            with netlink(pod.namespace) as link:
                link.wait_for_neighbor_discovery("eth0")
        return pods

    def _new_pod(self, plan: NodePlan, number: int) -> Host:
        name = plan.pod_name(number)
        namespace = self._namespace(name, sysctls.HOST)
        return self._register(name, namespace, plan.pod_addresses(number), plan.node_name)

    def _namespace(self, name: str, values: sysctls.Sysctls) -> Namespace:
        namespace = Namespace.create(name)
        self._open.callback(namespace.close)
        namespace.sysctls(values)
        return namespace

    def _register(self, name: str, namespace: Namespace, addresses: Addresses, node: str | None) -> Host:
        host = Host(name, namespace, addresses.ipv4, addresses.ipv6, node)
        self._hosts[name] = host
        return host


def _plan_of(node: str) -> NodePlan:
    return {plan.host: plan for plan in NODES}[node]


def _port(name: str) -> str:
    return f"veth-{name}"


def _build_lan(link: Netlink, members: list[Host]) -> None:
    link.up("lo")
    link.add_bridge("lan0", _LAN_MAC)
    link.add_addresses("lan0", BLACKHOLE_GATEWAY)
    link.add_blackhole_routes()
    for member in members:
        link.add_veth(_port(member.name), "lan0", member.namespace)


def _connect_outside(link: Netlink) -> None:
    _connect(link, OUTSIDE)
    link.add_addresses("eth0", SECOND_OUTSIDE, by_default=False)
    for networks in ROUTED_TO_NODE:
        link.add_routes(networks, gateway=NODE.lan)


def _connect_node(link: Netlink, plan: NodePlan, other: NodePlan) -> None:
    _connect(link, plan.lan)
    link.add_routes(_DEFAULT, gateway=BLACKHOLE_GATEWAY)
    link.add_routes(other.pods.cidrs, gateway=other.lan)
    link.add_bridge(_POD_BRIDGE, _POD_BRIDGE_MAC)
    link.add_addresses(_POD_BRIDGE, plan.gateway)


def _connect_pod(link: Netlink, plan: NodePlan, addresses: Addresses) -> None:
    _connect(link, addresses)
    link.add_routes(_DEFAULT, gateway=plan.gateway)


def _connect(link: Netlink, addresses: Addresses) -> None:
    link.up("lo")
    link.up("eth0")
    link.add_addresses("eth0", addresses)
