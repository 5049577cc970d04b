"""Writes ``nft -j list ruleset`` for kube-proxy in mode nftables, in its two layouts: up to 1.35 and since 1.36.

See docs/behaviour/nftables.md#base-chains and later sections. tests/bench/peers writes the same rules as nft commands,
which load faster; this module needs no kernel.
"""

import hashlib
from base64 import b32encode
from collections.abc import Iterator
from typing import Any

from knft.families import Family
from knft.model.endpoint import Endpoint
from knft.model.plan import Frontend, FrontendKind, TrafficAction
from knft_compat.sync_input import PlannedPort, SyncInput

Object = dict[str, Any]
Expression = dict[str, Any]

MARK = 0x4000
_PROTOCOLS = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
_BASES = (
    ("filter-prerouting-pre-dnat", "filter", "prerouting", -110),
    ("filter-output-pre-dnat", "filter", "output", -110),
    ("filter-input", "filter", "input", 0),
    ("filter-forward", "filter", "forward", 0),
    ("filter-output", "filter", "output", 0),
    ("nat-prerouting", "nat", "prerouting", -100),
    ("nat-output", "nat", "output", -100),
    ("nat-postrouting", "nat", "postrouting", 100),
)
_JUMPS = (
    ("filter-input", "nodeport-endpoints-check"),
    ("filter-input", "service-endpoints-check"),
    ("filter-forward", "service-endpoints-check"),
    ("filter-forward", "cluster-ips-check"),
    ("filter-output", "service-endpoints-check"),
    ("filter-output", "cluster-ips-check"),
    ("filter-prerouting-pre-dnat", "firewall-check"),
    ("filter-output-pre-dnat", "firewall-check"),
)
_PLAIN = ("services", "masquerading", "mark-for-masquerade", "reject-chain", "firewall-check", "cluster-ips-check",
          "service-endpoints-check", "nodeport-endpoints-check")  # fmt: skip
_THE_MARK = {"meta": {"key": "mark"}}
_PROTOCOL = {"meta": {"key": "l4proto"}}
_PORT = {"payload": {"protocol": "th", "field": "dport"}}


def match(left: Any, right: Any, op: str = "==") -> Expression:
    """Return a match statement."""
    return {"match": {"op": op, "left": left, "right": right}}


def jump_to(kind: str, target: str) -> Expression:
    """Return a jump or goto statement."""
    return {kind: {"target": target}}


def concat(*parts: Any) -> Expression:
    """Return a concatenation."""
    return {"concat": list(parts)}


def vmap(key: Any, name: str) -> Expression:
    """Return a vmap statement."""
    return {"vmap": {"key": key, "data": f"@{name}"}}


SET_MARK = {"mangle": {"key": _THE_MARK, "value": {"|": [_THE_MARK, MARK]}}}
_NEW = match({"ct": {"key": "state"}}, "new", "in")
_RANDOM_MASQUERADE = {"masquerade": {"flags": ["fully-random"]}}


def list_ruleset(cluster: SyncInput, service_cidrs: tuple[str, ...], *, by_chains: bool) -> list[Object]:
    """Return the listing; ``by_chains`` is the layout up to 1.35, with a chain for each endpoint and one to mark."""
    return _Writer(cluster, service_cidrs, by_chains=by_chains).written()


class _Writer:
    """Writes the table of one IP family."""

    def __init__(self, cluster: SyncInput, service_cidrs: tuple[str, ...], *, by_chains: bool) -> None:
        self._cluster = cluster
        self._is_ipv4 = cluster.family is Family.IPV4
        self._family = "ip" if self._is_ipv4 else "ip6"
        self._service_cidrs = [cidr for cidr in service_cidrs if (":" in cidr) is not self._is_ipv4]
        self._by_chains = by_chains
        assert cluster.local_traffic_match is not None
        self._pods = _prefix(cluster.local_traffic_match.if_local[1])
        self._elements: dict[str, list[Any]] = {}
        self._sets: dict[str, int] = {}
        self._chains: dict[str, list[Object]] = {name: [] for name in _PLAIN}

    def written(self) -> list[Object]:
        """Return the whole listing."""
        for port in self._cluster.ports:
            self._service(port)
        if self._cluster.node.ip:
            self._elements.setdefault("nodeport-ips", []).append(self._cluster.node.ip)
        bases = {name: self._base_rules(name) for name, *_ in _BASES}
        self._plain_rules()
        objects: list[Object] = [{"metainfo": {"json_schema_version": 1}}, {"table": {"name": "kube-proxy"}}]
        objects += [{"set": item} for item in self._containers(is_map=False)]
        objects += [{"map": item} for item in self._containers(is_map=True)]
        for name, kind, hook, priority in _BASES:
            objects.append({"chain": {"name": name, "type": kind, "hook": hook, "prio": priority, "policy": "accept"}})
        objects += [{"chain": {"name": name}} for name in self._chains]
        handle = 0
        for name, rules in {**bases, **self._chains}.items():
            for rule in rules:
                handle += 1
                objects.append({"rule": {"chain": name, "handle": handle, **rule}})
        for item in objects[1:]:
            (kind,) = item
            item[kind] = {"family": self._family, **({} if kind == "table" else {"table": "kube-proxy"}), **item[kind]}
        return objects

    def _containers(self, *, is_map: bool) -> Iterator[Object]:
        address = "ipv4_addr" if self._is_ipv4 else "ipv6_addr"
        frontend, port = [address, "inet_proto", "inet_service"], ["inet_proto", "inet_service"]
        types: dict[str, Any] = {"cluster-ips": address, "nodeport-ips": address}
        if not self._by_chains:
            types["hairpin-connections"] = [address, *frontend]
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

    def _base_rules(self, name: str) -> list[Object]:
        rules = [_rule(_NEW, jump_to("jump", target)) for base, target in _JUMPS if base == name]
        if name in ("nat-prerouting", "nat-output"):
            rules.append(_rule(jump_to("jump", "services")))
        if name == "nat-postrouting":
            rules.append(_rule(jump_to("jump", "masquerading")))
        return rules

    def _plain_rules(self) -> None:
        chains = self._chains
        frontend = concat(self._address("daddr"), _PROTOCOL, _PORT)
        node_port = match(self._address("daddr"), "@nodeport-ips"), concat(_PROTOCOL, _PORT)
        cluster_ip = match(self._address("daddr"), "@cluster-ips")
        chains["services"] += [
            _rule(vmap(frontend, "service-ips")),
            _rule(node_port[0], vmap(node_port[1], "service-nodeports")),
        ]
        if not self._by_chains:
            outside = cluster_ip, match(self._address("saddr"), self._pods, "!="), SET_MARK
            chains["services"].insert(0, _rule(*outside, comment="masquerade clusterIP traffic from outside cluster"))
        chains["masquerading"] += self._masquerading()
        chains["mark-for-masquerade"].append(_rule(SET_MARK))
        chains["reject-chain"].append(_rule({"reject": None}))
        chains["firewall-check"].append(_rule(vmap(frontend, "firewall-ips")))
        chains["service-endpoints-check"].append(_rule(vmap(frontend, "no-endpoint-services")))
        chains["nodeport-endpoints-check"].append(_rule(node_port[0], vmap(node_port[1], "no-endpoint-nodeports")))
        chains["cluster-ips-check"].append(_rule(cluster_ip, {"reject": None}, comment="invalid ports of ClusterIPs"))
        if self._service_cidrs:
            where = {"set": [_prefix(cidr) for cidr in self._service_cidrs]}
            unallocated = match(self._address("daddr"), where), {"drop": None}
            chains["cluster-ips-check"].append(_rule(*unallocated, comment="unallocated ClusterIPs"))

    def _masquerading(self) -> list[Object]:
        is_marked = {"&": [_THE_MARK, MARK]}
        unmark = {"mangle": {"key": _THE_MARK, "value": {"^": [_THE_MARK, MARK]}}}
        if self._by_chains:
            question = match(is_marked, 0), {"return": None}
            return [_rule(*question), _rule(unmark), _rule(_RANDOM_MASQUERADE)]
        hairpin = concat(self._address("saddr"), self._address("daddr"), _PROTOCOL, _PORT)
        itself = match({"ct": {"key": "status"}}, "dnat", "in"), match(hairpin, "@hairpin-connections")
        return [_rule(match(is_marked, 0, "!="), unmark, _RANDOM_MASQUERADE), _rule(*itself, _RANDOM_MASQUERADE)]

    def _mark(self) -> Expression:
        return jump_to("jump", "mark-for-masquerade") if self._by_chains else SET_MARK

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
            ranges = {"set": [_prefix(cidr) for cidr in plan.allowed_sources]}
            self._chains[f"firewall-{base}"] = [_rule(match(self._address("saddr"), ranges, "!="), {"drop": None})]
        addresses = self._elements.setdefault("cluster-ips", [])
        if plan.port.cluster_ip not in addresses:
            addresses.append(plan.port.cluster_ip)
        if not self._by_chains:
            self._hairpins(served)

    def _hairpins(self, served: PlannedPort) -> None:
        protocol = _PROTOCOLS[served.plan.name.protocol]
        for end in served.plan.endpoints.all_reachable:
            if end.is_local:
                hairpin = concat(end.address, end.address, protocol, end.port)
                self._elements.setdefault("hairpin-connections", []).append(hairpin)

    def _external(self, base: str, traffic: TrafficAction) -> Iterator[Object]:
        if traffic is TrafficAction.CLUSTER:
            yield _rule(self._mark(), comment="masquerade")
            yield _rule(jump_to("goto", f"service-{base}"))
            return
        is_nodes = match({"fib": {"result": "type", "flags": ["saddr"]}}, "local")
        pods = match(self._address("saddr"), self._pods), jump_to("goto", f"service-{base}")
        yield _rule(*pods, comment="short-circuit pod traffic")
        yield _rule(is_nodes, self._mark(), comment="masquerade local traffic")
        yield _rule(is_nodes, jump_to("goto", f"service-{base}"), comment="short-circuit local traffic")
        if traffic is TrafficAction.LOCAL:
            yield _rule(jump_to("goto", f"local-{base}"))

    def _frontend(self, served: PlannedPort, frontend: Frontend) -> None:
        base, plan = _suffix(served), served.plan
        protocol = _PROTOCOLS[frontend.protocol]
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
            verdict = {"drop": None} if traffic is TrafficAction.DROP else jump_to("goto", "reject-chain")
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
        if self._by_chains and chain.startswith(internal):
            is_cluster_ip = match(self._address("daddr"), plan.port.cluster_ip)
            rules.append(_rule(is_cluster_ip, match(self._address("saddr"), self._pods, "!="), self._mark()))
        is_protocol = match(_PROTOCOL, _PROTOCOLS[plan.name.protocol])
        if not self._by_chains and not plan.port.affinity_seconds:
            self._chains[chain] = [_rule(is_protocol, self._translation(endpoints))]
            return
        names = [f"{_suffix(served)}__{end.address}/{end.port}" for end in endpoints]
        for end, name in zip(endpoints, names, strict=True):
            self._chains[f"endpoint-{name}"] = list(self._endpoint(served, end, name))
        if plan.port.affinity_seconds:
            known = (
                (match(self._address("saddr"), f"@affinity-{name}"), jump_to("goto", f"endpoint-{name}"))
                for name in names
            )
            rules += [_rule(*steps) for steps in known]
        drawn = [[number, jump_to("goto", f"endpoint-{name}")] for number, name in enumerate(names)]
        rules.append(_rule({"vmap": {"key": _numgen(len(names)), "data": {"set": drawn}}}))
        self._chains[chain] = rules

    def _translation(self, endpoints: tuple[Endpoint, ...]) -> Expression:
        if len(endpoints) == 1:
            return {"dnat": {"family": self._family, "addr": endpoints[0].address, "port": endpoints[0].port}}
        targets = [[number, concat(end.address, end.port)] for number, end in enumerate(endpoints)]
        choice = {"map": {"key": _numgen(len(endpoints)), "data": {"set": targets}}}
        return {"dnat": {"family": self._family, "addr": choice}}

    def _endpoint(self, served: PlannedPort, end: Endpoint, name: str) -> Iterator[Object]:
        if self._by_chains:
            yield _rule(match(self._address("saddr"), end.address), self._mark())
        if served.plan.port.affinity_seconds:
            self._sets[f"affinity-{name}"] = served.plan.port.affinity_seconds
            yield _rule({"set": {"op": "update", "elem": self._address("saddr"), "set": f"@affinity-{name}"}})
        is_protocol = match(_PROTOCOL, _PROTOCOLS[served.plan.name.protocol])
        yield _rule(is_protocol, {"dnat": {"family": self._family, "addr": end.address, "port": end.port}})


def _rule(*steps: Expression, comment: str = "") -> Object:
    return {"expr": list(steps), **({"comment": comment} if comment else {})}


def _numgen(count: int) -> Expression:
    return {"numgen": {"mode": "random", "mod": count, "offset": 0}}


def _prefix(cidr: str) -> Expression:
    address, _, length = cidr.partition("/")
    return {"prefix": {"addr": address, "len": int(length)}}


def _suffix(served: PlannedPort) -> str:
    """Return what the names of a Service port's chains have in common."""
    name = served.plan.name
    base = f"{name.namespace}/{name.name}/{_PROTOCOLS[name.protocol]}/{name.port}"
    return f"{b32encode(hashlib.sha256(base.encode()).digest()).decode()[:8]}-{base}"
