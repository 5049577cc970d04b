"""Interfaces, addresses and routes: a bridge in the control plane's network namespace connects the nodes' eth0.

Pods reach those of another node through a route by that node, and there is no way to the world outside.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from deploy.cluster import processes
from deploy.cluster.machine import Machine
from deploy.cluster.plan import NodePlan, Plan

BRIDGE = "br0"
_DEFAULT_ROUTES = {4: "0.0.0.0/0", 6: "::/0"}
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
    # The control plane may have other routes than a node's.
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    # Addresses are unique by plan, and waiting for that takes seconds.
    "net/ipv6/conf/all/accept_dad": "0",
    "net/ipv6/conf/default/accept_dad": "0",
}


def control_plane_lines(plan: Plan) -> list[str]:
    """Return the commands of ``ip -batch`` for the control plane."""
    return [
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        *_address_lines(BRIDGE, plan.addresses, plan.prefix_lengths),
        f"link set {BRIDGE} up",
    ]


def port_lines(node: NodePlan, pid: int) -> list[str]:
    """Return the commands of ``ip -batch`` for the control plane that connect a node; ``pid`` is a process of it."""
    return [
        f"link add {node.name} type veth peer name eth0 address {_mac(node)} netns {pid}",
        f"link set {node.name} master {BRIDGE} up",
        *_pod_route_lines([node]),
    ]


def _mac(node: NodePlan) -> str:
    """Return a local MAC address that the node keeps: else other nodes send to the old one after its restart."""
    return (b"\x02\x00" + ip_address(node.addresses[0]).packed[-4:]).hex(":")


def node_lines(plan: Plan, node: NodePlan) -> list[str]:
    """Return the commands of ``ip -batch`` for a connected node."""
    return [
        "link set lo up",
        *_address_lines("eth0", node.addresses, plan.prefix_lengths),
        "link set eth0 up",
        *(f"route replace {_default_route(gateway)} via {gateway}" for gateway in plan.addresses),
        *_pod_route_lines(each for each in plan.nodes if each != node),
    ]


def _address_lines(device: str, addresses: Sequence[str], lengths: Sequence[int]) -> list[str]:
    return [
        f"address add {address}/{length} dev {device}{' nodad' if ':' in address else ''}"
        for address, length in zip(addresses, lengths, strict=True)
    ]


def _pod_route_lines(nodes: Iterable[NodePlan]) -> list[str]:
    return [
        f"route replace {cidr} via {address}"
        for node in nodes
        for cidr, address in zip(node.pod_cidrs, node.addresses, strict=True)
    ]


def _default_route(gateway: str) -> str:
    return _DEFAULT_ROUTES[6 if ":" in gateway else 4]


def set_up_control_plane(machine: Machine, plan: Plan) -> None:
    """Create the bridge in the control plane's network namespace."""
    _batch(machine, control_plane_lines(plan))


def connect_node(control_plane: Machine, machine: Machine, plan: Plan, node: NodePlan) -> None:
    """Connect a node that was just started with the bridge."""
    # The kernel deletes the interface of a node that was killed before some time later.
    _batch(control_plane, [f"link delete {node.name}"], force=True)
    _batch(control_plane, port_lines(node, machine.pid))
    _batch(machine, node_lines(plan, node))


def _batch(machine: Machine, lines: Sequence[str], *, force: bool = False) -> None:
    if force:
        command = machine.network_command("sh", "-c", "ip -force -batch - || true")
    else:
        command = machine.network_command("ip", "-batch", "-")
    processes.run(command, f"ip on {machine.name}", "".join(f"{line}\n" for line in lines))
