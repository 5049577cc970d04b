"""The chains and elements of Services: ``syncProxyRules`` in kube-proxy's proxier.go."""

import hashlib
from base64 import b32encode
from collections.abc import Iterator

from knft.model.endpoint import Endpoint
from knft.model.plan import Frontend, FrontendKind, TrafficAction
from knft_compat.nftables.expressions import (
    DROP,
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
)
from knft_compat.nftables.static_rules import Matches
from knft_compat.sync_input import PlannedPort

_MAX_BASE = 240
"""The maximum length of a chain's name without its prefix."""
_FROM_NODE = match({"fib": {"result": "type", "flags": ["saddr"]}}, "local")


class ServiceRules:
    """The chains, elements and affinity sets of all Service ports of a family."""

    def __init__(self, matches: Matches) -> None:
        """Start without Services."""
        self._matches = matches
        self.chains: dict[str, list[Object]] = {}
        self.elements: dict[str, list[object]] = {}
        self.affinity_seconds: dict[str, int] = {}
        """The timeouts of the affinity sets, by name."""

    def add(self, served: PlannedPort) -> None:
        """Add a Service port."""
        plan, base = served.plan, _chain_base(served)
        if plan.external is not TrafficAction.REJECT and plan.port.is_externally_accessible:
            self.chains[f"external-{base}"] = list(self._external(base, plan.external))
        if plan.allowed_sources:
            outside = match(self._matches.address("saddr"), networks(plan.allowed_sources), "!=")
            self.chains[f"firewall-{base}"] = [rule(outside, DROP)]
        cluster_ips = self.elements.setdefault("cluster-ips", [])
        if plan.port.cluster_ip not in cluster_ips:
            cluster_ips.append(plan.port.cluster_ip)
        for frontend in plan.frontends:
            self._add_frontend(served, frontend)
        self._add_endpoints(served)

    def _add_endpoints(self, served: PlannedPort) -> None:
        plan, base, protocol = served.plan, _chain_base(served), PROTOCOLS[served.plan.name.protocol]
        for policy, is_used, endpoints in (
            ("service", plan.port.uses_cluster_endpoints, plan.endpoints.cluster),
            ("local", plan.port.uses_local_endpoints, plan.endpoints.local),
        ):
            if is_used and endpoints:
                self.chains[f"{policy}-{base}"] = list(self._choice(served, endpoints))
        for endpoint in plan.endpoints.all_reachable:
            if endpoint.is_local:
                hairpin = concat(endpoint.address, endpoint.address, protocol, endpoint.port)
                self.elements.setdefault("hairpin-connections", []).append(hairpin)
            if plan.port.affinity_seconds:
                name = _endpoint_base(served, endpoint)
                self.affinity_seconds[f"affinity-{name}"] = plan.port.affinity_seconds
                self.chains[f"endpoint-{name}"] = list(self._endpoint(protocol, endpoint, name))

    def _external(self, base: str, traffic: TrafficAction) -> Iterator[Object]:
        if traffic is TrafficAction.CLUSTER:
            yield rule(self._matches.set_mark, comment="masquerade")
            yield rule(jump_to("goto", f"service-{base}"))
            return
        to_all = jump_to("goto", f"service-{base}")
        from_pods = self._matches.local_traffic(is_local=True)
        if from_pods is not None:
            yield rule(from_pods, to_all, comment="short-circuit pod traffic")
        yield rule(_FROM_NODE, self._matches.set_mark, comment="masquerade local traffic")
        yield rule(_FROM_NODE, to_all, comment="short-circuit local traffic")
        if traffic is TrafficAction.LOCAL:
            yield rule(jump_to("goto", f"local-{base}"))

    def _add_frontend(self, served: PlannedPort, frontend: Frontend) -> None:
        base, plan, protocol = _chain_base(served), served.plan, PROTOCOLS[frontend.protocol]
        is_internal = frontend.kind is FrontendKind.CLUSTER_IP
        traffic = plan.internal if is_internal else plan.external
        if frontend.address is None:
            key, maps = concat(protocol, frontend.port), ("service-nodeports", "no-endpoint-nodeports")
        else:
            key = concat(frontend.address, protocol, frontend.port)
            maps = ("service-ips", "no-endpoint-services")
        policy = ("local" if traffic is TrafficAction.LOCAL else "service") if is_internal else "external"
        if traffic in (TrafficAction.CLUSTER, TrafficAction.LOCAL):
            self._add_verdict(maps[0], key, served, jump_to("goto", f"{policy}-{base}"))
        elif traffic is TrafficAction.REJECT:
            self._add_verdict(maps[1], key, served, jump_to("goto", "reject-chain"))
        else:
            # Pods and the node still reach endpoints on other nodes.
            if not is_internal:
                self._add_verdict(maps[0], key, served, jump_to("goto", f"{policy}-{base}"))
            self._add_verdict(maps[1], key, served, DROP)
        if frontend.kind is FrontendKind.LOAD_BALANCER_VIP and plan.allowed_sources:
            self._add_verdict("firewall-ips", key, served, jump_to("goto", f"firewall-{base}"))

    def _add_verdict(self, map_name: str, key: Expression, served: PlannedPort, verdict: Expression) -> None:
        is_commented = map_name.startswith("no-endpoint-")
        left = {"elem": {"val": key, "comment": str(served.plan.name)}} if is_commented else key
        self.elements.setdefault(map_name, []).append([left, verdict])

    def _choice(self, served: PlannedPort, endpoints: tuple[Endpoint, ...]) -> Iterator[Object]:
        """Yield the rules that select one of the endpoints."""
        if not served.plan.port.affinity_seconds:
            targets = [[number, concat(end.address, end.port)] for number, end in enumerate(endpoints)]
            choice = {"map": {"key": numgen(len(endpoints)), "data": {"set": targets}}}
            is_protocol = match(PROTOCOL, PROTOCOLS[served.plan.name.protocol])
            yield rule(is_protocol, {"dnat": {"family": self._matches.nft_family, "addr": choice}})
            return
        names = [_endpoint_base(served, endpoint) for endpoint in endpoints]
        for name in names:
            has_entry = match(self._matches.address("saddr"), f"@affinity-{name}")
            yield rule(has_entry, jump_to("goto", f"endpoint-{name}"))
        jumps = [[number, jump_to("goto", f"endpoint-{name}")] for number, name in enumerate(names)]
        yield rule({"vmap": {"key": numgen(len(names)), "data": {"set": jumps}}})

    def _endpoint(self, protocol: str, endpoint: Endpoint, name: str) -> Iterator[Object]:
        """Yield the rules of an endpoint's chain, which only Services with affinity have."""
        yield rule({"set": {"op": "update", "elem": self._matches.address("saddr"), "set": f"@affinity-{name}"}})
        yield rule(match(PROTOCOL, protocol), {"dnat": {"addr": endpoint.address, "port": endpoint.port}})


def _chain_base(served: PlannedPort) -> str:
    """Return what the names of a Service port's chains have in common."""
    return _hashed(_service_path(served))


def _endpoint_base(served: PlannedPort, endpoint: Endpoint) -> str:
    """Return what the names of an endpoint's chain and affinity set have in common."""
    return _hashed(f"{_service_path(served)}__{endpoint.address.replace(':', '.')}/{endpoint.port}")


def _service_path(served: PlannedPort) -> str:
    name = served.plan.name
    return f"{name.namespace}/{name.name}/{PROTOCOLS[name.protocol]}/{name.port}"


def _hashed(text: str) -> str:
    name = f"{b32encode(hashlib.sha256(text.encode()).digest()).decode()[:8]}-{text}"
    return name if len(name) <= _MAX_BASE else f"{name[: _MAX_BASE - 3]}..."
