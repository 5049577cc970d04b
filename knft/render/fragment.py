"""Fragments: the elements and chains that one Service port, or the node, needs.

See docs/behaviour/nftables.md#service-ports.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from knft.config import Config
from knft.families import Family
from knft.model import addresses
from knft.model.annotations import MAGLEV, RANDOM
from knft.model.endpoint import Endpoint, endpoint_is_local, endpoint_target
from knft.model.names import ServicePortName
from knft.model.node import NodeView
from knft.model.plan import Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.nft.expressions import Goto
from knft.nft.objects import Array, ArrayName, Contents, EndpointId, Entry, Key, Target
from knft.protocols import NFT_PROTOCOLS
from knft.render import frontends, names
from knft.render.counters import counter_members, counting_verdict
from knft.render.endpoint_ids import assign_ids, ids_of_contents, previous_ids
from knft.render.frontends import endpoints_of
from knft.render.hashing import hashed_array
from knft.render.localhost_nodeports import localhost_rejections
from knft.render.maglev import maglev_table, table_size
from knft.render.order import stable_order
from knft.render.pools import (
    ExternalClusterChain,
    ExternalLocalChain,
    HashPool,
    Pool,
    PoolChain,
    PoolKind,
    ResetChain,
    SharedChain,
    pool_chain,
    with_targets,
)
from knft.render.wide import (
    ALL_CLASSES,
    WidePort,
    wide_array,
    wide_chain_name,
    wide_chains,
    wide_classes,
    wide_ids_array,
    wide_verdict,
)


class PreviousTable(Struct, frozen=True):
    """What the table contained before, as far as rendering depends on it.

    ``arrays`` give the order of endpoints: a frontend without a previous array gets them in the order of the plan.
    ``wide_numbers`` are those of wide Service ports. New endpoint IDs depend on ``now``, which is in seconds and must
    differ from sync to sync. ``contents_of`` returns all contents of a Service port, None if they are not known.
    """

    arrays: Mapping[ArrayName, Array] = {}
    wide_numbers: Mapping[ServicePortName, int] = {}
    now: float = 0.0
    contents_of: Callable[[ServicePortName], Contents | None] = lambda _: None


class Fragment(Struct, frozen=True):
    """The elements, own chains and shared chains that one Service port, or the node, needs."""

    contents: Contents
    chains: tuple[SharedChain, ...] = ()


def render_plan(
    plan: ServicePlan, previous: PreviousTable, wide: WidePort | None, family: Family, config: Config
) -> Fragment:
    """Return the fragment of one Service port; ``wide`` is its number if it is wide."""
    contents = Contents.empty()
    contents.members.add((names.CLUSTER_IPS, (plan.port.cluster_ip,)))
    contents.members.update(_hairpins(plan))
    if config.service_counters:
        contents.members.update(counter_members(plan))
    chains: dict[SharedChain, None] = {}
    comment = str(plan.name)
    has_wide_endpoints = wide is not None and wide.endpoints
    arrays = _EndpointArrays(plan, previous, wide, contents)
    for frontend in plan.frontends:
        reset = _add_rejection(plan, frontend, comment, contents, config)
        chains.update(dict.fromkeys(reset))
        _add_source_ranges(plan, frontend, wide, comment, contents)
        needed = () if has_wide_endpoints else _shared_chains(plan, frontend)
        arrays.add_frontend(_pools(needed), frontend)
        chains.update(dict.fromkeys(needed))
        verdict = _verdict(plan, frontend, needed, wide)
        if verdict is not None:
            contents.entries[frontends.service_element(frontend)] = Entry(verdict, comment)
    if config.localhost_nodeports:
        contents.entries.update(localhost_rejections(plan, comment, family, config))
    if wide is not None:
        if wide.endpoints:
            arrays.add_wide(wide)
        if wide.is_hashed:
            contents.arrays.update(_hashed_arrays(plan, wide.number))
        contents.chains.update((chain.name, chain) for chain in wide_chains(plan, wide, family, config))
    return Fragment(contents, tuple(chains))


def _hashed_arrays(plan: ServicePlan, number: int) -> Iterator[tuple[ArrayName, Array]]:
    """Yield the tables of a Service port whose clients are hashed, and its number for each frontend."""
    for traffic_class in wide_classes(plan):
        targets = _targets(endpoints_of(plan, traffic_class))
        yield hashed_array(plan, number, traffic_class), maglev_table(targets, table_size(len(targets)))
    for frontend in plan.frontends:
        if frontends.traffic_classes(plan, frontend):
            is_nodeport = frontend.kind is FrontendKind.NODE_PORT
            numbers = names.numbers_map(NFT_PROTOCOLS[frontend.protocol], nodeport=is_nodeport)
            yield ArrayName(numbers, frontends.array_prefix(frontend)), (number,)


def _verdict(
    plan: ServicePlan, frontend: Frontend, needed: Sequence[SharedChain], wide: WidePort | None
) -> Goto | None:
    """Return the verdict that sends a frontend's packets to a chain; None if no chain serves them."""
    if wide is not None and wide.endpoints:
        return wide_verdict(plan, frontend, wide)
    return _goto(needed[0]) if needed else None


def _endpoint_ids(plan: ServicePlan, previous: PreviousTable, wide: WidePort | None) -> dict[Target, EndpointId]:
    """Return the IDs of the endpoints of a Service port with session affinity."""
    targets = _targets(plan.endpoints.all_reachable)
    found = previous_ids(previous.arrays, _previous_arrays(plan, previous, wide))
    known = previous.contents_of(plan.name)
    if known is not None:  # These take precedence: frontends may have been those of another Service port.
        found |= ids_of_contents(known)
    return assign_ids(targets, found, f"{plan.name} {previous.now!r}")


def _previous_arrays(
    plan: ServicePlan, previous: PreviousTable, wide: WidePort | None
) -> Iterator[tuple[ArrayName, ArrayName]]:
    """Yield the names of the arrays of endpoints, and of their IDs, that a Service port may have had.

    If its number was forgotten, while not all of its objects were known, it gets the same one again.
    """
    number = previous.wide_numbers.get(plan.name, wide.number if wide is not None else None)
    if number is not None:
        for traffic_class in ALL_CLASSES:
            yield wide_array(plan, number, traffic_class), wide_ids_array(number, traffic_class)
    for frontend in plan.frontends:
        for is_local in (False, True):  # Both, because the traffic policy may have been another one.
            kind = PoolKind(NFT_PROTOCOLS[frontend.protocol], frontend.kind is FrontendKind.NODE_PORT, is_local)
            yield _arrays(kind, frontend)


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
    local = map(endpoint_target, filter(endpoint_is_local, plan.endpoints.all_reachable))
    return [(names.HAIRPIN, (address, address, protocol, port)) for address, port in local]


def _add_rejection(
    plan: ServicePlan, frontend: Frontend, comment: str, contents: Contents, config: Config
) -> tuple[ResetChain, ...]:
    """Add the element that rejects or drops a frontend's traffic if it has no endpoint; return the chain it needs."""
    verdict = frontends.filter_verdict(frontends.traffic_action(plan, frontend))
    if verdict is not None and config.service_counters:
        verdict = counting_verdict(verdict, frontend)
    if verdict is None:
        return ()
    reset = (ResetChain(verdict),) if plan.port.resets_connections else ()
    contents.entries[frontends.no_endpoint_element(frontend)] = Entry(_goto(reset[0]) if reset else verdict, comment)
    return reset


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


def _pools(chains: Iterable[SharedChain]) -> list[PoolChain]:
    return [chain for chain in chains if isinstance(chain, PoolChain)]


class _EndpointArrays:
    """Adds the endpoints of one Service port to its contents and, with session affinity, their IDs."""

    def __init__(self, plan: ServicePlan, previous: PreviousTable, wide: WidePort | None, contents: Contents) -> None:
        self._plan, self._previous, self._contents = plan, previous, contents
        self._ids = _endpoint_ids(plan, previous, wide) if plan.port.affinity_seconds else None

    def add_frontend(self, pools: Iterable[PoolChain], frontend: Frontend) -> None:
        """Add the endpoints of a frontend's pools."""
        for pool in pools:
            endpoints = self._plan.endpoints.local if pool.kind.local else self._plan.endpoints.cluster
            self._add(_arrays(pool.kind, frontend), endpoints)

    def add_wide(self, wide: WidePort) -> None:
        """Add the endpoints of a wide Service port, once for each traffic class."""
        for traffic_class in wide_classes(self._plan):
            array = wide_array(self._plan, wide.number, traffic_class)
            ids_array = wide_ids_array(wide.number, traffic_class)
            self._add((array, ids_array), endpoints_of(self._plan, traffic_class))

    def _add(self, arrays: tuple[ArrayName, ArrayName], endpoints: tuple[Endpoint, ...]) -> None:
        array, ids_array = arrays
        ordered = stable_order(self._previous.arrays.get(array, ()), _targets(endpoints))
        self._contents.arrays[array] = ordered
        if self._ids is not None:
            ids = self._ids
            self._contents.arrays[ids_array] = tuple([ids[target] for target in ordered])


def _arrays(kind: PoolKind, frontend: Frontend) -> tuple[ArrayName, ArrayName]:
    """Return the names of the arrays of a frontend's endpoints and of their IDs."""
    prefix = frontends.array_prefix(frontend)
    endpoints, ids = _maps(kind)
    return ArrayName(endpoints, prefix), ArrayName(ids, prefix)


def _targets(endpoints: tuple[Endpoint, ...]) -> tuple[Target, ...]:
    return tuple(map(endpoint_target, endpoints))


def _shared_chains(plan: ServicePlan, frontend: Frontend) -> tuple[SharedChain, ...]:
    """Return the shared chains that a frontend needs; its packets go to the first one.

    mypy reports a new TrafficAction that has no case here or in ``frontends.filter_verdict``.
    """
    return _chains_of(
        NFT_PROTOCOLS[frontend.protocol],
        frontend.kind,
        frontends.traffic_action(plan, frontend),
        (len(plan.endpoints.cluster), len(plan.endpoints.local)),
        (plan.port.affinity_seconds, plan.port.load_balancing if plan.port.hashes_clients else RANDOM),
    )


# Cached, here and below, to save time and to share equal objects: 25 000 Service ports have few different ones.
@lru_cache(maxsize=1 << 12)
def _chains_of(
    protocol: str, kind: FrontendKind, action: TrafficAction, sizes: tuple[int, int], balancing: tuple[int, str]
) -> tuple[SharedChain, ...]:
    """Return the shared chains.

    ``sizes`` are the numbers of cluster and of local endpoints, ``balancing`` the affinity timeout and the annotation.
    """
    nodeport, is_internal = kind is FrontendKind.NODE_PORT, kind is FrontendKind.CLUSTER_IP
    cluster, local = (
        _pool(PoolKind(protocol, nodeport, is_local), size, *balancing)
        for is_local, size in zip((False, True), sizes, strict=True)
    )
    match action:
        case TrafficAction.CLUSTER:
            return with_targets(cluster if is_internal else ExternalClusterChain(cluster))
        case TrafficAction.LOCAL:
            return with_targets(local if is_internal else ExternalLocalChain(cluster, local))
        case TrafficAction.DROP:
            return () if is_internal else with_targets(ExternalLocalChain(cluster, local))
        case TrafficAction.REJECT:
            return ()


def _pool(kind: PoolKind, endpoints: int, timeout: int, load_balancing: str) -> Pool:
    if load_balancing == RANDOM:
        return pool_chain(kind, endpoints, timeout)
    return HashPool(kind, table_size(endpoints), by_port=load_balancing == MAGLEV)


@lru_cache(maxsize=1 << 6)
def _maps(kind: PoolKind) -> tuple[str, str]:
    return kind.map, kind.ids_map


@lru_cache(maxsize=1 << 12)
def _goto(chain: SharedChain) -> Goto:
    return Goto(chain.name)
