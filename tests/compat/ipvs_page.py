"""Small clusters, and what the IPVS mode makes of them."""

from collections.abc import Iterator, Sequence
from typing import Any

from knft.decide.endpoints import categorize_endpoints
from knft.model.endpoint import Endpoint, endpoint_key
from knft.model.names import Family, Protocol, ServicePortName
from knft.model.plan import ServicePlan, Traffic
from knft.model.service_port import ServicePort
from knft_compat.cluster import Cluster, LocalTraffic, Masquerade, Node, ServedPort
from knft_compat.ipvs import Settings, Vintage, sync
from knft_compat.ipvs.claims import bound_addresses, claims
from knft_compat.ipvs.entries import Entries, entries
from knft_compat.ipvs.vintages import FEATURES

NODE = Node(Family.IPV4, "192.0.2.10", ("192.0.2.10", "192.0.2.11"))
NODE6 = Node(Family.IPV6, "2001:db8::10", ("2001:db8::10",))
PODS = LocalTraffic(("-s", "10.244.0.0/16"), ("!", "-s", "10.244.0.0/16"))


def endpoint(text: str) -> Endpoint:
    """Return an endpoint on port 8080; L before its address puts it on this node, T ends it, N makes it unready."""
    address = text.lstrip("LTN")
    flags = text[: len(text) - len(address)]
    return Endpoint(
        address,
        8080,
        endpoint_key(address, 8080),
        is_local="L" in flags,
        ready="T" not in flags and "N" not in flags,
        serving="N" not in flags,
        terminating="T" in flags,
    )


def served(
    *endpoints: str, name: str = "shop/web:http", protocol: Protocol = "TCP", ip: str = "10.96.0.1", **fields: Any
) -> ServedPort:
    """Return a Service port at 10.96.0.1:80 with endpoints."""
    namespace, _, rest = name.partition("/")
    service, _, port_name = rest.partition(":")
    port = ServicePort(**{"cluster_ip": ip, "port": 80, "protocol": protocol, **fields})
    found = tuple(endpoint(text) for text in endpoints)
    plan = ServicePlan(
        ServicePortName(namespace, service, port_name, protocol),
        port,
        categorize_endpoints(found, port, "node-1", ""),
        (),
        Traffic.CLUSTER,
        Traffic.CLUSTER,
    )
    return ServedPort(plan, found)


def cluster(
    *ports: ServedPort,
    before: Sequence[ServedPort] | None = None,
    node: Node = NODE,
    pods: LocalTraffic | None = PODS,
    masquerade: Masquerade = Masquerade(),  # noqa: B008 - it is frozen
) -> Cluster:
    """Return a cluster on a node with two addresses, whose pods are told by theirs."""
    return Cluster(node, ports, None if before is None else tuple(before), pods, masquerade)


def sets(of: Cluster, vintage: Vintage = Vintage.NEWEST) -> dict[str, tuple[str, ...]]:
    """Return the entries of all sets that have some."""
    return {name: members for name, members in all_entries(of, vintage).sets.items() if members}


def all_entries(of: Cluster, vintage: Vintage = Vintage.NEWEST) -> Entries:
    """Return the entries of all sets, and what is fenced."""
    return entries(of, FEATURES[vintage])


def bound(of: Cluster, vintage: Vintage = Vintage.NEWEST) -> tuple[str, ...]:
    """Return the addresses that the device has to have."""
    return bound_addresses(tuple(claims(of, FEATURES[vintage])))


def lines(of: Cluster, part: str, **settings: Any) -> list[str]:
    """Return the lines of one part of a sync's page."""
    text = sync(of, Settings(**settings)).part(part)
    assert text is not None, part
    return text.splitlines()


def rules(of: Cluster, chain: str, *, table: str = "nat", vintage: Vintage = Vintage.NEWEST) -> list[str]:
    """Return the rules of one chain, without its name."""
    return [line.removeprefix(f"-A {chain} ") for line in _table(of, table, vintage) if line.startswith(f"-A {chain} ")]


def declared(of: Cluster, table: str, vintage: Vintage = Vintage.NEWEST) -> list[str]:
    """Return the chains that one table empties, in order."""
    return [line[1:].partition(" ")[0] for line in _table(of, table, vintage) if line.startswith(":")]


def _table(of: Cluster, table: str, vintage: Vintage) -> Iterator[str]:
    inside = False
    for line in lines(of, "iptables-restore", vintage=vintage):
        if line.startswith("*"):
            inside = line == f"*{table}"
        elif inside:
            yield line
