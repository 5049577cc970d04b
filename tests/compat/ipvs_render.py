"""Small clusters, and the output of the IPVS mode for them."""

from collections.abc import Iterator, Sequence
from typing import Any

from knft.decide.endpoints import categorize_endpoints
from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.plan import ServicePlan, TrafficAction
from knft.model.service_port import ServicePort
from knft.protocols import Protocol
from knft_compat.ipvs import RuleVersion, Settings, sync
from knft_compat.ipvs.claims import bound_addresses, claims
from knft_compat.ipvs.entries import SetEntries, set_entries
from knft_compat.ipvs.rule_versions import FEATURES
from knft_compat.sync_input import LocalTrafficMatch, Masquerade, Node, PlannedPort, SyncInput

NODE = Node(Family.IPV4, "192.0.2.10", ("192.0.2.10", "192.0.2.11"))
NODE6 = Node(Family.IPV6, "2001:db8::10", ("2001:db8::10",))
PODS = LocalTrafficMatch(("-s", "10.244.0.0/16"), ("!", "-s", "10.244.0.0/16"))


def endpoint(text: str) -> Endpoint:
    """Return an endpoint on port 8080; prefixes of the address: L local, T terminating, N neither ready nor serving."""
    address = text.lstrip("LTN")
    flags = text[: len(text) - len(address)]
    return Endpoint.at(
        address,
        8080,
        is_local="L" in flags,
        ready="T" not in flags and "N" not in flags,
        serving="N" not in flags,
        terminating="T" in flags,
    )


def service_port(
    *endpoints: str, name: str = "shop/web:http", protocol: Protocol = "TCP", ip: str = "10.96.0.1", **fields: Any
) -> PlannedPort:
    """Return a Service port at 10.96.0.1:80 with endpoints."""
    namespace, _, rest = name.partition("/")
    service, _, port_name = rest.partition(":")
    port = ServicePort(**{"cluster_ip": ip, "port": 80, "protocol": protocol, **fields})
    tracked = tuple(endpoint(text) for text in endpoints)
    plan = ServicePlan(
        ServicePortName(namespace, service, port_name, protocol),
        port,
        categorize_endpoints(tracked, port, "node-1", ""),
        (),
        TrafficAction.CLUSTER,
        TrafficAction.CLUSTER,
    )
    return PlannedPort(plan, tracked)


def sync_input(
    *ports: PlannedPort,
    before: Sequence[PlannedPort] | None = None,
    node: Node = NODE,
    pods: LocalTrafficMatch | None = PODS,
    masquerade: Masquerade = Masquerade(),  # noqa: B008 - it is frozen
) -> SyncInput:
    """Return the input of a sync on a node with two addresses, with local traffic detected by pod CIDR."""
    return SyncInput(node, ports, None if before is None else tuple(before), pods, masquerade)


def nonempty_sets(cluster: SyncInput, rule_version: RuleVersion = RuleVersion.NEWEST) -> dict[str, tuple[str, ...]]:
    """Return the entries of all sets that have entries."""
    return {name: members for name, members in all_entries(cluster, rule_version).sets.items() if members}


def all_entries(cluster: SyncInput, rule_version: RuleVersion = RuleVersion.NEWEST) -> SetEntries:
    """Return the entries of all sets, and the denied frontends."""
    return set_entries(cluster, FEATURES[rule_version])


def addresses_to_bind(cluster: SyncInput, rule_version: RuleVersion = RuleVersion.NEWEST) -> tuple[str, ...]:
    """Return the addresses that kube-ipvs0 must have."""
    return bound_addresses(tuple(claims(cluster, FEATURES[rule_version])))


def part_lines(cluster: SyncInput, part: str, **settings: Any) -> list[str]:
    """Return the lines of one part of a sync's output."""
    text = sync(cluster, Settings(**settings)).part_text(part)
    assert text is not None, part
    return text.splitlines()


def rules(
    cluster: SyncInput, chain: str, *, table: str = "nat", rule_version: RuleVersion = RuleVersion.NEWEST
) -> list[str]:
    """Return the rules of one chain, without its name."""
    return [
        line.removeprefix(f"-A {chain} ")
        for line in _table(cluster, table, rule_version)
        if line.startswith(f"-A {chain} ")
    ]


def declared_chains(cluster: SyncInput, table: str, rule_version: RuleVersion = RuleVersion.NEWEST) -> list[str]:
    """Return the chains that one table declares, in order."""
    return [line[1:].partition(" ")[0] for line in _table(cluster, table, rule_version) if line.startswith(":")]


def _table(cluster: SyncInput, table: str, rule_version: RuleVersion) -> Iterator[str]:
    inside = False
    for line in part_lines(cluster, "iptables-restore", rule_version=rule_version):
        if line.startswith("*"):
            inside = line == f"*{table}"
        elif inside:
            yield line
