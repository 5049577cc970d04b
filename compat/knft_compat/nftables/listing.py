"""Puts chains, rules, sets and maps together as ``nft -j list ruleset`` prints them."""

from collections.abc import Iterator

from knft.families import Family
from knft.model import addresses
from knft_compat.nftables.expressions import Object
from knft_compat.nftables.service_rules import ServiceRules
from knft_compat.nftables.static_rules import BASE_CHAINS, Matches, base_rules, static_chains
from knft_compat.sync_input import SyncInput

TABLE = "kube-proxy"
_VERDICT_MAPS = ("service-ips", "no-endpoint-services", "firewall-ips")
_NODE_PORT_MAPS = ("service-nodeports", "no-endpoint-nodeports")


def list_table(sync_input: SyncInput) -> list[Object]:
    """Return the listing of a node that has only kube-proxy's table of one family, after a first sync."""
    matches = Matches(sync_input)
    services = ServiceRules(matches)
    for served in sync_input.ports:
        services.add(served)
    chains = {**static_chains(sync_input, matches), **services.chains}
    found: list[Object] = [{"metainfo": {"json_schema_version": 1}}]
    found += [{"table": {"family": matches.nft_family, "name": TABLE}}]
    found += [_in_table(matches, kind, item) for kind, item in _containers(sync_input, services)]
    for base in BASE_CHAINS:
        hook = {"type": base.kind, "hook": base.hook, "prio": base.priority, "policy": "accept"}
        found.append(_in_table(matches, "chain", {"name": base.name, **hook}))
    found += [_in_table(matches, "chain", {"name": name}) for name in chains]
    rules = [(base.name, rule) for base in BASE_CHAINS for rule in base_rules(base.name)]
    rules += [(name, rule) for name, listed in chains.items() for rule in listed]
    found += [
        _in_table(matches, "rule", {"chain": name, "handle": handle, **rule})
        for handle, (name, rule) in enumerate(rules, start=1)
    ]
    return found


def _in_table(matches: Matches, kind: str, item: Object) -> Object:
    return {kind: {"family": matches.nft_family, "table": TABLE, **item}}


def _containers(sync_input: SyncInput, services: ServiceRules) -> Iterator[tuple[str, Object]]:
    """Yield the sets and maps, each with its kind."""
    address = "ipv4_addr" if sync_input.family is Family.IPV4 else "ipv6_addr"
    elements: dict[str, list[object]] = {**services.elements, "nodeport-ips": list(_node_port_ips(sync_input))}
    sets: dict[str, object] = {
        "cluster-ips": address,
        "hairpin-connections": [address, address, "inet_proto", "inet_service"],
    }
    if sync_input.node.nodeport_cidrs:
        sets["nodeport-ips"] = address
    maps = {name: [address, "inet_proto", "inet_service"] for name in _VERDICT_MAPS}
    maps |= {name: ["inet_proto", "inet_service"] for name in _NODE_PORT_MAPS}
    for name, kind in sets.items():
        yield "set", {"name": name, "type": kind, **_elements_of(elements, name)}
    for name, key in maps.items():
        yield "map", {"name": name, "type": key, "map": "verdict", **_elements_of(elements, name)}
    for name, seconds in services.affinity_seconds.items():
        yield "set", {"name": name, "type": address, "flags": ["timeout", "dynamic"], "timeout": seconds, "size": 65535}


def _elements_of(elements: dict[str, list[object]], name: str) -> Object:
    return {"elem": found} if (found := elements.get(name)) else {}


def _node_port_ips(sync_input: SyncInput) -> Iterator[str]:
    node = sync_input.node
    for address in node.local_addresses:
        if any(addresses.contains(cidr, address) for cidr in node.nodeport_cidrs):
            yield address
