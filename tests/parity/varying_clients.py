"""Clients with many source addresses: for a Service with session affinity, each address is another client.

Two hosts have a network of their own each, to which the lab's nodes have routes. A target whose source is VARYING is
sent from another address of it each time.
"""

from tests.parity.dial import Target
from tests.support.lab import plan
from tests.support.lab.links import netlink
from tests.support.lab.topology import Lab

VARYING = "varying"
"""The source of a target that is sent from another address each time."""
NETWORKS = {
    "outside": plan.Subnet("198.18.0", "2001:db8:2"),
    "local-4": plan.Subnet("10.244.4", "fd00:10:244:4"),
}
"""The networks of the hosts. That of the pod is in the cluster CIDR, so that proxies take it for local traffic."""
_COUNT = 250


def concrete(target: Target, number: int) -> Target:
    """Return the target itself, or with the address of that number if its source varies."""
    if target.source != VARYING:
        return target
    addresses = NETWORKS[target.client].at(1 + number % _COUNT)
    return target._replace(source=addresses.of(6 if ":" in target.address else 4))


def add_clients(lab: Lab) -> None:
    """Give the hosts of a lab their networks."""
    for name, network in NETWORKS.items():
        host = lab.host(name)
        # IPv6 refuses to bind addresses that are local by a route only.
        host.namespace.sysctl("net.ipv6.ip_nonlocal_bind", 1)
        with netlink(host.namespace) as link:
            link.add_local_networks(network.cidrs)
        with netlink(lab.host(plan.NODE.host).namespace) as link:
            link.add_routes(network.cidrs, plan.Addresses(host.ipv4, host.ipv6))
        with netlink(lab.host(plan.REMOTE.host).namespace) as link:
            link.add_routes(network.cidrs, plan.NODE.lan)
