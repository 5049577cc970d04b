"""Fragments: one Service port's share of the table, and the node's own (C.6)."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from msgspec import Struct

from knft.config import Config
from knft.model import addresses
from knft.model.endpoint import Endpoint
from knft.model.names import Family
from knft.model.node import NodeView
from knft.model.plan import Frontend, FrontendKind, ServicePlan, Traffic
from knft.nft.expressions import Goto, Verdict
from knft.nft.objects import Array, ArrayName, Contents, Entry, Key, Target
from knft.render import frontends, names
from knft.render.numbering import StickyPort
from knft.render.order import place
from knft.render.pools import ClusterPolicy, LocalPolicy, Pool, PoolKind, SharedChain
from knft.render.sticky import sticky_chains, sticky_verdict

Orders = Mapping[ArrayName, Array]
"""The arrays of the last sync; what is not among them starts in the order of the endpoints."""


class Fragment(Struct, frozen=True):
    """The elements, own chains and shared chains that one Service port, or the node, needs.

    ``sticky`` is what a Service port with session affinity was numbered by.
    """

    contents: Contents
    chains: tuple[SharedChain, ...] = ()
    sticky: StickyPort | None = None


def render_plan(
    plan: ServicePlan, previous: Orders, sticky: StickyPort | None, family: Family, config: Config
) -> Fragment:
    """Return the fragment of one Service port; ``sticky`` numbers its endpoints where it has session affinity."""
    contents = Contents.empty()
    contents.members.add((names.CLUSTER_IPS, (plan.port.cluster_ip,)))
    contents.members.update(_hairpins(plan))
    chains: dict[SharedChain, None] = {}
    verdict: Verdict | None
    for frontend in plan.frontends:
        _refuse(plan, frontend, contents)
        needed = _shared_chains(plan, frontend)
        _fill(_pools(needed), plan, frontend, previous, contents)
        if sticky is None:
            chains.update(dict.fromkeys(needed))
            verdict = Goto(needed[0].name) if needed else None
        else:
            # The pools are for clients that cannot be remembered.
            chains.update(dict.fromkeys(_pools(needed)))
            verdict = sticky_verdict(plan, frontend, sticky)
        if verdict is not None:
            contents.entries[frontends.service_element(frontend)] = Entry(verdict, str(plan.name))
    if sticky is not None:
        contents.chains.update(sticky_chains(plan, sticky, _pools(chains), family, config))
    return Fragment(contents, tuple(chains), sticky)


def render_node(node: NodeView, config: Config) -> Fragment:
    """Return what the node itself puts into the table: NodePort addresses, Service CIDRs and pod CIDRs."""
    contents = Contents.empty()
    if not config.nodeports_everywhere(node.family):
        contents.members.update((names.NODEPORT_IPS, (address,)) for address in node.nodeport_ips)
    contents.members.update(
        (names.SERVICE_CIDRS, (addresses.without_host_length(cidr),)) for cidr in addresses.collapse(node.service_cidrs)
    )
    if not config.detects_by_interface and config.fixed_pod_cidr(node.family) is None:
        # Where the range of pods is not known, nobody is masqueraded as an outsider, and nobody is a pod.
        everybody = "::/0" if node.family is Family.IPV6 else "0.0.0.0/0"
        contents.members.add((names.INSIDE_CIDRS, (node.pod_cidr or everybody,)))
        if node.pod_cidr is not None:
            contents.members.add((names.POD_CIDRS, (node.pod_cidr,)))
    return Fragment(contents)


def _hairpins(plan: ServicePlan) -> Iterator[tuple[str, Key]]:
    protocol = names.NFT_PROTOCOLS[plan.port.protocol]
    for endpoint in plan.endpoints.all_reachable:
        if endpoint.is_local:
            key = (endpoint.address, endpoint.address, protocol, endpoint.port)
            yield names.HAIRPIN, key


def _refuse(plan: ServicePlan, frontend: Frontend, contents: Contents) -> None:
    """Add who may not dial a frontend, and what becomes of packets that no endpoint took."""
    verdict = frontends.filter_verdict(frontends.traffic(plan, frontend))
    if verdict is not None:
        contents.entries[frontends.no_endpoint_element(frontend)] = Entry(verdict, str(plan.name))
    if frontend.kind is FrontendKind.LOAD_BALANCER_VIP and plan.allowed_sources:
        key = frontends.frontend_key(frontend)
        contents.members.add((names.GUARDED_FRONTENDS, key))
        contents.members.update(
            (names.SOURCE_RANGES, (*key, addresses.without_host_length(cidr))) for cidr in plan.allowed_sources
        )


def _pools(chains: Iterable[SharedChain]) -> list[Pool]:
    return [chain for chain in chains if isinstance(chain, Pool)]


def _fill(pools: Iterable[Pool], plan: ServicePlan, frontend: Frontend, previous: Orders, contents: Contents) -> None:
    """Give a frontend's pools their endpoints."""
    for pool in pools:
        array = ArrayName(pool.kind.map, frontends.array_prefix(frontend))
        endpoints = plan.endpoints.local if pool.kind.local else plan.endpoints.cluster
        contents.arrays[array] = place(previous.get(array, ()), _targets(endpoints))


def _targets(endpoints: tuple[Endpoint, ...]) -> tuple[Target, ...]:
    return tuple((endpoint.address, endpoint.port) for endpoint in endpoints)


def _shared_chains(plan: ServicePlan, frontend: Frontend) -> tuple[SharedChain, ...]:
    """Return the chains that a frontend needs without affinity, the one that its packets enter first."""
    protocol, nodeport = names.NFT_PROTOCOLS[frontend.protocol], frontend.address is None
    cluster = _pool(PoolKind(protocol, nodeport, local=False), len(plan.endpoints.cluster))
    local = _pool(PoolKind(protocol, nodeport, local=True), len(plan.endpoints.local))
    match frontends.is_internal(frontend), frontends.traffic(plan, frontend):
        case True, Traffic.CLUSTER:
            return (cluster,)
        case True, Traffic.LOCAL:
            return (local,)
        case False, Traffic.CLUSTER:
            return (ClusterPolicy(cluster), cluster)
        case False, Traffic.LOCAL:
            return (LocalPolicy(cluster, local), cluster, local)
        case False, Traffic.DROP:
            return (LocalPolicy(cluster, local), cluster)
        case _:
            return ()


@lru_cache(maxsize=1 << 12)
def _pool(kind: PoolKind, size: int) -> Pool:
    return Pool(kind, size)
