"""Fragments: the elements and chains that one Service port, or the node, needs.

See docs/behaviour/nftables.md#service-ports.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from knft.config import Config
from knft.families import Family
from knft.model import addresses
from knft.model.endpoint import Endpoint
from knft.model.node import NodeView
from knft.model.plan import Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.nft.expressions import Goto, Verdict
from knft.nft.objects import Array, ArrayName, Contents, Entry, Key, Target
from knft.protocols import NFT_PROTOCOLS
from knft.render import frontends, names
from knft.render.frontends import TrafficClass
from knft.render.numbering import StickyPort
from knft.render.order import stable_order
from knft.render.pools import ExternalClusterChain, ExternalLocalChain, PoolChain, PoolKind, SharedChain
from knft.render.sticky import sticky_chains, sticky_verdict
from knft.render.wide import (
    WidePort,
    endpoints_of,
    wide_array,
    wide_chain_name,
    wide_chains,
    wide_classes,
    wide_verdict,
)

EndpointOrders = Mapping[ArrayName, Array]
"""The arrays of the previous sync; an array has the elements of one frontend or sticky port in one endpoint map.

A frontend without a previous array gets its endpoints in the order of the plan.
"""


class Fragment(Struct, frozen=True):
    """The elements, own chains and shared chains that one Service port, or the node, needs.

    ``sticky`` holds the number and indexes of a Service port with session affinity.
    """

    contents: Contents
    chains: tuple[SharedChain, ...] = ()
    sticky: StickyPort | None = None


class PortNumbers(Struct, frozen=True):
    """The numbers of a Service port that has chains of its own, because it is sticky, wide, or both."""

    sticky: StickyPort | None = None
    wide: WidePort | None = None


def render_plan(
    plan: ServicePlan, previous: EndpointOrders, numbers: PortNumbers, family: Family, config: Config
) -> Fragment:
    """Return the fragment of one Service port."""
    sticky, wide = numbers.sticky, numbers.wide
    contents = Contents.empty()
    contents.members.add((names.CLUSTER_IPS, (plan.port.cluster_ip,)))
    contents.members.update(_hairpins(plan))
    chains: dict[SharedChain, None] = {}
    comment = str(plan.name)
    for frontend in plan.frontends:
        _add_rejection(plan, frontend, comment, contents)
        _add_source_ranges(plan, frontend, wide, comment, contents)
        needed = () if wide is not None and wide.endpoints else _shared_chains(plan, frontend)
        _add_endpoints(_pools(needed), plan, frontend, previous, contents)
        # With affinity, the pools serve clients that do not fit into the affinity set.
        chains.update(dict.fromkeys(needed if sticky is None else _pools(needed)))
        verdict = _verdict(plan, frontend, needed, sticky, wide)
        if verdict is not None:
            contents.entries[frontends.service_element(frontend)] = Entry(verdict, comment)
    if wide is not None:
        _add_wide_contents(plan, wide, previous, contents)
        found = wide_chains(plan, wide, family, config, is_sticky=sticky is not None)
        contents.chains.update((chain.name, chain) for chain in found)
    if sticky is not None:
        contents.chains.update(sticky_chains(plan, sticky, _fallbacks(plan, chains, wide), family, config))
    return Fragment(contents, tuple(chains), sticky)


def _verdict(
    plan: ServicePlan,
    frontend: Frontend,
    needed: Sequence[SharedChain],
    sticky: StickyPort | None,
    wide: WidePort | None,
) -> Verdict | None:
    """Return the verdict that sends a frontend's packets to a chain; None if no chain serves them."""
    if sticky is not None:
        return sticky_verdict(plan, frontend, sticky, wide)
    if wide is not None and wide.endpoints:
        return wide_verdict(plan, frontend, wide)
    return _goto(needed[0]) if needed else None


def _fallbacks(plan: ServicePlan, pools: Iterable[SharedChain], wide: WidePort | None) -> dict[TrafficClass, list[str]]:
    """Return the chains of each traffic class that pick an endpoint without affinity."""
    if wide is not None and wide.endpoints:
        return {traffic_class: [wide_chain_name(wide, traffic_class)] for traffic_class in wide_classes(plan)}
    found: dict[TrafficClass, list[str]] = {}
    for pool in _pools(pools):
        found.setdefault("local" if pool.kind.local else "cluster", []).append(pool.name)
    return {traffic_class: sorted(found[traffic_class]) for traffic_class in sorted(found)}


def render_node(node: NodeView, config: Config) -> Fragment:
    """Return the node's fragment: the addresses for NodePorts, the Service CIDRs and the pod CIDRs."""
    contents = Contents.empty()
    if not config.nodeports_on_all_addresses(node.family):
        contents.members.update((names.NODEPORT_IPS, (address,)) for address in node.nodeport_ips)
    contents.members.update(
        (names.SERVICE_CIDRS, (addresses.without_host_length(cidr),)) for cidr in addresses.collapse(node.service_cidrs)
    )
    if not config.detects_by_interface and config.configured_pod_cidr(node.family) is None:
        # If the pod CIDR is unknown, no source is masqueraded as outside the cluster, and none counts as a pod.
        any_address = "::/0" if node.family is Family.IPV6 else "0.0.0.0/0"
        contents.members.add((names.INSIDE_CIDRS, (node.pod_cidr or any_address,)))
        if node.pod_cidr is not None:
            contents.members.add((names.POD_CIDRS, (node.pod_cidr,)))
    return Fragment(contents)


def _hairpins(plan: ServicePlan) -> list[tuple[str, Key]]:
    protocol = NFT_PROTOCOLS[plan.port.protocol]
    local = [endpoint.target for endpoint in plan.endpoints.all_reachable if endpoint.traits.is_local]
    return [(names.HAIRPIN, (address, address, protocol, port)) for address, port in local]


def _add_rejection(plan: ServicePlan, frontend: Frontend, comment: str, contents: Contents) -> None:
    """Add the element that rejects or drops a frontend's traffic if it has no endpoint."""
    verdict = frontends.filter_verdict(frontends.traffic_action(plan, frontend))
    if verdict is not None:
        contents.entries[frontends.no_endpoint_element(frontend)] = Entry(verdict, comment)


def _add_source_ranges(
    plan: ServicePlan, frontend: Frontend, wide: WidePort | None, comment: str, contents: Contents
) -> None:
    """Add the elements that restrict the clients of a load balancer VIP."""
    if frontend.kind is not FrontendKind.LOAD_BALANCER_VIP or not plan.allowed_sources:
        return
    key = frontends.frontend_key(frontend)
    if wide is not None and wide.source_ranges:
        verdict = Goto(wide_chain_name(wide, "sources"))
        contents.entries[names.SOURCE_RANGE_CHAINS, key] = Entry(verdict, comment)
        return
    contents.members.add((names.SOURCE_RESTRICTED_FRONTENDS, key))
    contents.members.update(
        (names.SOURCE_RANGES, (*key, addresses.without_host_length(cidr))) for cidr in plan.allowed_sources
    )


def _add_wide_contents(plan: ServicePlan, wide: WidePort, previous: EndpointOrders, contents: Contents) -> None:
    """Add the endpoints of a wide Service port, once for each traffic class."""
    if not wide.endpoints:
        return
    for traffic_class in wide_classes(plan):
        array = wide_array(plan, wide, traffic_class)
        targets = _targets(endpoints_of(plan, traffic_class))
        contents.arrays[array] = stable_order(previous.get(array, ()), targets)


def _pools(chains: Iterable[SharedChain]) -> list[PoolChain]:
    return [chain for chain in chains if isinstance(chain, PoolChain)]


def _add_endpoints(
    pools: Iterable[PoolChain], plan: ServicePlan, frontend: Frontend, previous: EndpointOrders, contents: Contents
) -> None:
    """Add the endpoints of a frontend's pools."""
    for pool in pools:
        array = ArrayName(_map(pool.kind), frontends.array_prefix(frontend))
        endpoints = plan.endpoints.local if pool.kind.local else plan.endpoints.cluster
        contents.arrays[array] = stable_order(previous.get(array, ()), _targets(endpoints))


def _targets(endpoints: tuple[Endpoint, ...]) -> tuple[Target, ...]:
    return tuple([endpoint.target for endpoint in endpoints])


def _shared_chains(plan: ServicePlan, frontend: Frontend) -> tuple[SharedChain, ...]:
    """Return the shared chains that a frontend needs without affinity; its packets go to the first one.

    mypy reports a new TrafficAction that has no case here or in ``frontends.filter_verdict``.
    """
    return _chains_of(
        NFT_PROTOCOLS[frontend.protocol],
        frontend.kind,
        frontends.traffic_action(plan, frontend),
        len(plan.endpoints.cluster),
        len(plan.endpoints.local),
    )


# Cached, here and below, to save time and to share equal objects: 25 000 Service ports have few different ones.
@lru_cache(maxsize=1 << 12)
def _chains_of(
    protocol: str, kind: FrontendKind, action: TrafficAction, cluster_size: int, local_size: int
) -> tuple[SharedChain, ...]:
    nodeport, is_internal = kind is FrontendKind.NODE_PORT, kind is FrontendKind.CLUSTER_IP
    cluster = PoolChain(PoolKind(protocol, nodeport, local=False), cluster_size)
    local = PoolChain(PoolKind(protocol, nodeport, local=True), local_size)
    match action:
        case TrafficAction.CLUSTER:
            return (cluster,) if is_internal else (ExternalClusterChain(cluster), cluster)
        case TrafficAction.LOCAL:
            return (local,) if is_internal else (ExternalLocalChain(cluster, local), cluster, local)
        case TrafficAction.DROP:
            return () if is_internal else (ExternalLocalChain(cluster, local), cluster)
        case TrafficAction.REJECT:
            return ()


@lru_cache(maxsize=1 << 6)
def _map(kind: PoolKind) -> str:
    return kind.map


@lru_cache(maxsize=1 << 12)
def _goto(chain: SharedChain) -> Goto:
    return Goto(chain.name)
