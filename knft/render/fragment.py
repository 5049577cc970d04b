"""Fragments: the elements and chains that one Service port, or the node, needs.

See docs/behaviour/nftables.md#service-ports.
"""

from collections.abc import Iterable, Iterator, Mapping
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
from knft.render.numbering import StickyPort
from knft.render.order import stable_order
from knft.render.pools import ExternalClusterChain, ExternalLocalChain, PoolChain, PoolKind, SharedChain
from knft.render.sticky import sticky_chains, sticky_verdict

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


def render_plan(
    plan: ServicePlan, previous: EndpointOrders, sticky: StickyPort | None, family: Family, config: Config
) -> Fragment:
    """Return the fragment of one Service port; ``sticky`` is None without session affinity."""
    contents = Contents.empty()
    contents.members.add((names.CLUSTER_IPS, (plan.port.cluster_ip,)))
    contents.members.update(_hairpins(plan))
    chains: dict[SharedChain, None] = {}
    verdict: Verdict | None
    for frontend in plan.frontends:
        _add_rejection_and_source_ranges(plan, frontend, contents)
        needed = _shared_chains(plan, frontend)
        _add_endpoints(_pools(needed), plan, frontend, previous, contents)
        if sticky is None:
            chains.update(dict.fromkeys(needed))
            verdict = Goto(needed[0].name) if needed else None
        else:
            # The pools serve clients that do not fit into the affinity set.
            chains.update(dict.fromkeys(_pools(needed)))
            verdict = sticky_verdict(plan, frontend, sticky)
        if verdict is not None:
            contents.entries[frontends.service_element(frontend)] = Entry(verdict, str(plan.name))
    if sticky is not None:
        contents.chains.update(sticky_chains(plan, sticky, _pools(chains), family, config))
    return Fragment(contents, tuple(chains), sticky)


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


def _hairpins(plan: ServicePlan) -> Iterator[tuple[str, Key]]:
    protocol = NFT_PROTOCOLS[plan.port.protocol]
    for endpoint in plan.endpoints.all_reachable:
        if endpoint.is_local:
            key = (endpoint.address, endpoint.address, protocol, endpoint.port)
            yield names.HAIRPIN, key


def _add_rejection_and_source_ranges(plan: ServicePlan, frontend: Frontend, contents: Contents) -> None:
    """Add the elements that reject or drop traffic without endpoints, and those for source ranges."""
    verdict = frontends.filter_verdict(frontends.traffic_action(plan, frontend))
    if verdict is not None:
        contents.entries[frontends.no_endpoint_element(frontend)] = Entry(verdict, str(plan.name))
    if frontend.kind is FrontendKind.LOAD_BALANCER_VIP and plan.allowed_sources:
        key = frontends.frontend_key(frontend)
        contents.members.add((names.SOURCE_RESTRICTED_FRONTENDS, key))
        contents.members.update(
            (names.SOURCE_RANGES, (*key, addresses.without_host_length(cidr))) for cidr in plan.allowed_sources
        )


def _pools(chains: Iterable[SharedChain]) -> list[PoolChain]:
    return [chain for chain in chains if isinstance(chain, PoolChain)]


def _add_endpoints(
    pools: Iterable[PoolChain], plan: ServicePlan, frontend: Frontend, previous: EndpointOrders, contents: Contents
) -> None:
    """Add the endpoints of a frontend's pools."""
    for pool in pools:
        array = ArrayName(pool.kind.map, frontends.array_prefix(frontend))
        endpoints = plan.endpoints.local if pool.kind.local else plan.endpoints.cluster
        contents.arrays[array] = stable_order(previous.get(array, ()), _targets(endpoints))


def _targets(endpoints: tuple[Endpoint, ...]) -> tuple[Target, ...]:
    return tuple((endpoint.address, endpoint.port) for endpoint in endpoints)


def _shared_chains(plan: ServicePlan, frontend: Frontend) -> tuple[SharedChain, ...]:
    """Return the shared chains that a frontend needs without affinity; its packets go to the first one.

    mypy reports a new TrafficAction that has no case here or in ``frontends.filter_verdict``.
    """
    protocol, nodeport = NFT_PROTOCOLS[frontend.protocol], frontend.address is None
    cluster = _pool(PoolKind(protocol, nodeport, local=False), len(plan.endpoints.cluster))
    local = _pool(PoolKind(protocol, nodeport, local=True), len(plan.endpoints.local))
    is_internal = frontends.is_internal(frontend)
    match frontends.traffic_action(plan, frontend):
        case TrafficAction.CLUSTER:
            return (cluster,) if is_internal else (ExternalClusterChain(cluster), cluster)
        case TrafficAction.LOCAL:
            return (local,) if is_internal else (ExternalLocalChain(cluster, local), cluster, local)
        case TrafficAction.DROP:
            return () if is_internal else (ExternalLocalChain(cluster, local), cluster)
        case TrafficAction.REJECT:
            return ()


@lru_cache(maxsize=1 << 12)
def _pool(kind: PoolKind, size: int) -> PoolChain:
    return PoolChain(kind, size)
