"""Writes ``nft -j list ruleset`` for kube-proxy up to 1.35: a chain for each endpoint, and a chain that marks packets.

See docs/behaviour/nftables.md#base-chains and later sections. ``knft_compat.nftables`` writes the layout since 1.36.
tests/bench/peers writes both as nft commands, which load faster; this module needs no kernel.
"""

import hashlib
from base64 import b32encode
from collections.abc import Iterator
from typing import Any

from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.plan import Frontend, FrontendKind, TrafficAction
from knft_compat.nftables.expressions import (
    DROP,
    MARK,
    PORT,
    PROTOCOL,
    PROTOCOLS,
    Expression,
    Object,
    concat,
    jump_to,
    match,
    networks,
    numgen,
    rule,
    set_mark,
    vmap,
)
from knft_compat.nftables.static_rules import BASE_CHAINS, base_rules
from knft_compat.sync_input import PlannedPort, SyncInput

_MARK = 0x4000
_PLAIN = ("services", "masquerading", "mark-for-masquerade", "reject-chain", "firewall-check", "cluster-ips-check",
          "service-endpoints-check", "nodeport-endpoints-check")  # fmt: skip
_SET_MARK = set_mark(_MARK)
_MARK_PACKET = jump_to("jump", "mark-for-masquerade")
_RANDOM_MASQUERADE = {"masquerade": {"flags": ["fully-random"]}}


def list_ruleset(cluster: SyncInput) -> list[Object]:
    """Return the listing."""
    return _Writer(cluster).written()


class _Writer:
    """Writes the table of one IP family."""

    def __init__(self, cluster: SyncInput) -> None:
        self._cluster = cluster
        self._family = cluster.family.nft
        assert cluster.local_traffic_match is not None
        self._pods = networks(cluster.local_traffic_match.if_local[1:])
        self._elements: dict[str, list[Any]] = {}
        self._sets: dict[str, int] = {}
        self._chains: dict[str, list[Object]] = {name: [] for name in _PLAIN}

    def written(self) -> list[Object]:
        """Return the whole listing."""
        for port in self._cluster.ports:
            self._service(port)
        if self._cluster.node.ip:
            self._elements.setdefault("nodeport-ips", []).append(self._cluster.node.ip)
        bases = {base.name: list(base_rules(base.name)) for base in BASE_CHAINS}
        self._plain_rules()
        objects: list[Object] = [{"metainfo": {"json_schema_version": 1}}, {"table": {"name": "kube-proxy"}}]
        objects += [{"set": item} for item in self._containers(is_map=False)]
        objects += [{"map": item} for item in self._containers(is_map=True)]
        for name, kind, hook, priority in BASE_CHAINS:
            objects.append({"chain": {"name": name, "type": kind, "hook": hook, "prio": priority, "policy": "accept"}})
        objects += [{"chain": {"name": name}} for name in self._chains]
        handle = 0
        for name, rules in {**bases, **self._chains}.items():
            for written in rules:
                handle += 1
                objects.append({"rule": {"chain": name, "handle": handle, **written}})
        for item in objects[1:]:
            (kind,) = item
            item[kind] = {"family": self._family, **({} if kind == "table" else {"table": "kube-proxy"}), **item[kind]}
        return objects

    def _containers(self, *, is_map: bool) -> Iterator[Object]:
        address = "ipv4_addr" if self._cluster.family is Family.IPV4 else "ipv6_addr"
        frontend, port = [address, "inet_proto", "inet_service"], ["inet_proto", "inet_service"]
        types: dict[str, Any] = {"cluster-ips": address, "nodeport-ips": address}
        if is_map:
            types = dict.fromkeys(("service-ips", "no-endpoint-services", "firewall-ips"), frontend)
            types |= dict.fromkeys(("service-nodeports", "no-endpoint-nodeports"), port)
        for name, kind in types.items():
            found = self._elements.get(name)
            more = {"map": "verdict"} if is_map else {}
            yield {"name": name, "type": kind, **more, **({"elem": found} if found else {})}
        if not is_map:
            for name, seconds in self._sets.items():
                yield {
                    "name": name,
                    "type": address,
                    "flags": ["timeout", "dynamic"],
                    "timeout": seconds,
                    "size": 65535,
                }

    def _address(self, field: str) -> Expression:
        return {"payload": {"protocol": self._family, "field": field}}

    def _plain_rules(self) -> None:
        chains = self._chains
        frontend = concat(self._address("daddr"), PROTOCOL, PORT)
        node_port = match(self._address("daddr"), "@nodeport-ips"), concat(PROTOCOL, PORT)
        cluster_ip = match(self._address("daddr"), "@cluster-ips")
        chains["services"] += [
            rule(vmap(frontend, "service-ips")),
            rule(node_port[0], vmap(node_port[1], "service-nodeports")),
        ]
        chains["masquerading"] += self._masquerading()
        chains["mark-for-masquerade"].append(rule(_SET_MARK))
        chains["reject-chain"].append(rule({"reject": None}))
        chains["firewall-check"].append(rule(vmap(frontend, "firewall-ips")))
        chains["service-endpoints-check"].append(rule(vmap(frontend, "no-endpoint-services")))
        chains["nodeport-endpoints-check"].append(rule(node_port[0], vmap(node_port[1], "no-endpoint-nodeports")))
        chains["cluster-ips-check"].append(rule(cluster_ip, {"reject": None}, comment="invalid ports of ClusterIPs"))
        if self._cluster.service_cidrs:
            unallocated = match(self._address("daddr"), networks(self._cluster.service_cidrs)), DROP
            chains["cluster-ips-check"].append(rule(*unallocated, comment="unallocated ClusterIPs"))

    def _masquerading(self) -> list[Object]:
        is_marked = {"&": [MARK, _MARK]}
        unmark = {"mangle": {"key": MARK, "value": {"^": [MARK, _MARK]}}}
        return [rule(match(is_marked, 0), {"return": None}), rule(unmark), rule(_RANDOM_MASQUERADE)]

    def _service(self, served: PlannedPort) -> None:
        plan, base = served.plan, _suffix(served)
        pools = (
            ("service-", plan.port.uses_cluster_endpoints, plan.endpoints.cluster),
            ("local-", plan.port.uses_local_endpoints, plan.endpoints.local),
        )
        for name, is_used, endpoints in pools:
            if is_used and endpoints:
                self._pool(served, f"{name}{base}", endpoints)
        if plan.external is not TrafficAction.REJECT and plan.port.is_externally_accessible:
            self._chains[f"external-{base}"] = list(self._external(base, plan.external))
        for frontend in plan.frontends:
            self._frontend(served, frontend)
        if plan.allowed_sources:
            is_outside = match(self._address("saddr"), networks(plan.allowed_sources), "!=")
            self._chains[f"firewall-{base}"] = [rule(is_outside, DROP)]
        addresses = self._elements.setdefault("cluster-ips", [])
        if plan.port.cluster_ip not in addresses:
            addresses.append(plan.port.cluster_ip)

    def _external(self, base: str, traffic: TrafficAction) -> Iterator[Object]:
        if traffic is TrafficAction.CLUSTER:
            yield rule(_MARK_PACKET, comment="masquerade")
            yield rule(jump_to("goto", f"service-{base}"))
            return
        is_nodes = match({"fib": {"result": "type", "flags": ["saddr"]}}, "local")
        pods = match(self._address("saddr"), self._pods), jump_to("goto", f"service-{base}")
        yield rule(*pods, comment="short-circuit pod traffic")
        yield rule(is_nodes, _MARK_PACKET, comment="masquerade local traffic")
        yield rule(is_nodes, jump_to("goto", f"service-{base}"), comment="short-circuit local traffic")
        if traffic is TrafficAction.LOCAL:
            yield rule(jump_to("goto", f"local-{base}"))

    def _frontend(self, served: PlannedPort, frontend: Frontend) -> None:
        base, plan = _suffix(served), served.plan
        protocol = PROTOCOLS[frontend.protocol]
        is_internal = frontend.kind is FrontendKind.CLUSTER_IP
        traffic = plan.internal if is_internal else plan.external
        if frontend.address is None:
            key, maps = concat(protocol, frontend.port), ("service-nodeports", "no-endpoint-nodeports")
        else:
            key = concat(frontend.address, protocol, frontend.port)
            maps = ("service-ips", "no-endpoint-services")
        if is_internal:
            target = jump_to("goto", f"{'local' if traffic is TrafficAction.LOCAL else 'service'}-{base}")
        else:
            target = jump_to("goto", f"external-{base}")
        # Where policy Local finds no endpoint here, pods and the node still reach all of them.
        if traffic in (TrafficAction.CLUSTER, TrafficAction.LOCAL) or (
            traffic is TrafficAction.DROP and not is_internal
        ):
            self._map(maps[0], key, served, target)
        if traffic in (TrafficAction.DROP, TrafficAction.REJECT):
            verdict = DROP if traffic is TrafficAction.DROP else jump_to("goto", "reject-chain")
            self._map(maps[1], key, served, verdict)
        if frontend.kind is FrontendKind.LOAD_BALANCER_VIP and plan.allowed_sources:
            self._map("firewall-ips", key, served, jump_to("goto", f"firewall-{base}"))

    def _map(self, name: str, key: Any, served: PlannedPort, verdict: Expression) -> None:
        element = [{"elem": {"val": key, "comment": str(served.plan.name)}}, verdict]
        self._elements.setdefault(name, []).append(element)

    def _pool(self, served: PlannedPort, chain: str, endpoints: tuple[Endpoint, ...]) -> None:
        plan = served.plan
        rules: list[Object] = []
        internal = "local-" if plan.internal is TrafficAction.LOCAL else "service-"
        if chain.startswith(internal):
            is_cluster_ip = match(self._address("daddr"), plan.port.cluster_ip)
            rules.append(rule(is_cluster_ip, match(self._address("saddr"), self._pods, "!="), _MARK_PACKET))
        names = [f"{_suffix(served)}__{end.address}/{end.port}" for end in endpoints]
        for end, name in zip(endpoints, names, strict=True):
            self._chains[f"endpoint-{name}"] = list(self._endpoint(served, end, name))
        if plan.port.affinity_seconds:
            known = (
                (match(self._address("saddr"), f"@affinity-{name}"), jump_to("goto", f"endpoint-{name}"))
                for name in names
            )
            rules += [rule(*steps) for steps in known]
        drawn = [[number, jump_to("goto", f"endpoint-{name}")] for number, name in enumerate(names)]
        rules.append(rule({"vmap": {"key": numgen(len(names)), "data": {"set": drawn}}}))
        self._chains[chain] = rules

    def _endpoint(self, served: PlannedPort, end: Endpoint, name: str) -> Iterator[Object]:
        yield rule(match(self._address("saddr"), end.address), _MARK_PACKET)
        if served.plan.port.affinity_seconds:
            self._sets[f"affinity-{name}"] = served.plan.port.affinity_seconds
            yield rule({"set": {"op": "update", "elem": self._address("saddr"), "set": f"@affinity-{name}"}})
        is_protocol = match(PROTOCOL, PROTOCOLS[served.plan.name.protocol])
        yield rule(is_protocol, {"dnat": {"family": self._family, "addr": end.address, "port": end.port}})


def _suffix(served: PlannedPort) -> str:
    """Return what the names of a Service port's chains have in common."""
    name = served.plan.name
    base = f"{name.namespace}/{name.name}/{PROTOCOLS[name.protocol]}/{name.port}"
    return f"{b32encode(hashlib.sha256(base.encode()).digest()).decode()[:8]}-{base}"
