"""Fragments: one Service port's share of the table, and the node's own (C.6)."""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec import Struct

from knft.config import Config
from knft.model import addresses
from knft.model.endpoint import Endpoint
from knft.model.node import NodeView
from knft.model.plan import Frontend, FrontendKind, ServicePlan, Traffic
from knft.nft.expressions import Drop, Goto
from knft.nft.objects import Array, ArrayName, Contents, Entry, Key, Target
from knft.render import names
from knft.render.order import place
from knft.render.pools import ClusterPolicy, LocalPolicy, Pool, PoolKind, SharedChain

Orders = Mapping[ArrayName, Array]
"""The arrays of the last sync; what is not among them starts in the order of the endpoints."""


class Fragment(Struct, frozen=True):
    """The elements and shared chains that one Service port, or the node, needs."""

    contents: Contents
    chains: tuple[SharedChain, ...] = ()


def render_plan(plan: ServicePlan, previous: Orders) -> Fragment:
    """Return the fragment of one Service port."""
    contents = Contents.empty()
    chains: dict[SharedChain, None] = {}
    contents.members.add((names.CLUSTER_IPS, (plan.port.cluster_ip,)))
    contents.members.update(_hairpins(plan))
    cluster, local = _targets(plan.endpoints.cluster), _targets(plan.endpoints.local)
    for frontend in plan.frontends:
        # An open door where the Service asked for a guarded one would be worse than none.
        if frontend.kind is FrontendKind.LOAD_BALANCER_VIP and plan.port.load_balancer_source_ranges:
            continue
        side = _Side(plan, frontend)
        verdict = side.filter_verdict
        if verdict is not None:
            contents.entries[side.no_endpoint_key] = Entry(verdict, str(plan.name))
        if not side.entry_chain:
            continue
        chains.update(dict.fromkeys(side.chains))
        contents.entries[side.service_key] = Entry(Goto(side.entry_chain), str(plan.name))
        for pool in side.pools:
            array = ArrayName(pool.kind.map, side.prefix)
            contents.arrays[array] = place(previous.get(array, ()), local if pool.kind.local else cluster)
    return Fragment(contents, tuple(chains))


def render_node(node: NodeView, config: Config) -> Fragment:
    """Return what the node itself puts into the table: NodePort addresses and Service CIDRs."""
    contents = Contents.empty()
    if not config.nodeports_everywhere(node.family):
        contents.members.update((names.NODEPORT_IPS, (address,)) for address in node.nodeport_ips)
    contents.members.update(
        (names.SERVICE_CIDRS, (_interval(cidr),)) for cidr in addresses.collapse(node.service_cidrs)
    )
    return Fragment(contents)


def _interval(cidr: str) -> str:
    # A range of one address is listed as that address.
    return cidr.removesuffix("/128") if ":" in cidr else cidr.removesuffix("/32")


def _targets(endpoints: tuple[Endpoint, ...]) -> tuple[Target, ...]:
    return tuple((endpoint.address, endpoint.port) for endpoint in endpoints)


def _hairpins(plan: ServicePlan) -> Iterator[tuple[str, Key]]:
    protocol = names.NFT_PROTOCOLS[plan.port.protocol]
    for endpoint in plan.endpoints.all_reachable:
        if endpoint.is_local:
            key = (endpoint.address, endpoint.address, protocol, endpoint.port)
            yield names.HAIRPIN, key


class _Side:
    """One frontend of a plan: where its packets go, in terms of chains and keys."""

    def __init__(self, plan: ServicePlan, frontend: Frontend) -> None:
        self._sizes = (len(plan.endpoints.cluster), len(plan.endpoints.local))
        self._nodeport = frontend.address is None
        self._protocol = names.NFT_PROTOCOLS[frontend.protocol]
        self._internal = frontend.kind is FrontendKind.CLUSTER_IP
        self.traffic = plan.internal if self._internal else plan.external
        self._address, self._port = frontend.address, frontend.port
        self.chains = self._chain_specs()

    def _chain_specs(self) -> tuple[SharedChain, ...]:
        size, local_size = self._sizes
        cluster = _pool(self._protocol, self._nodeport, False, size)  # noqa: FBT003
        local = _pool(self._protocol, self._nodeport, True, local_size)  # noqa: FBT003
        match self._internal, self.traffic:
            case True, Traffic.CLUSTER:
                return (cluster,)
            case True, Traffic.LOCAL:
                return (local,)
            case False, Traffic.CLUSTER:
                return (_cluster_policy(cluster), cluster)
            case False, (Traffic.LOCAL | Traffic.DROP):
                policy = LocalPolicy(cluster, local)
                return (policy, cluster, local) if local_size else (policy, cluster)
            case _:
                return ()

    @property
    def entry_chain(self) -> str:
        """The chain that the frontend's packets go to, "" where there is none."""
        return self.chains[0].name if self.chains else ""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools whose maps need this frontend's endpoints."""
        return tuple(spec for spec in self.chains if isinstance(spec, Pool))

    @property
    def filter_verdict(self) -> Goto | Drop | None:
        """What becomes of packets that no endpoint took."""
        match self.traffic:
            case Traffic.REJECT:
                return Goto(names.REJECT_CHAIN)
            case Traffic.DROP:
                return Drop()
            case _:
                return None

    @property
    def prefix(self) -> Key:
        """The frontend as the beginning of a key in an endpoint map."""
        return (self._port,) if self._address is None else (self._address, self._port)

    @property
    def service_key(self) -> tuple[str, Key]:
        """The frontend in the map that leads to chains."""
        return (names.SERVICE_NODEPORTS if self._nodeport else names.SERVICE_IPS, self._key)

    @property
    def no_endpoint_key(self) -> tuple[str, Key]:
        """The frontend in the map of those that nobody answers."""
        map_name = names.NO_ENDPOINT_NODEPORTS if self._nodeport else names.NO_ENDPOINT_SERVICES
        return (map_name, self._key)

    @property
    def _key(self) -> Key:
        if self._address is None:
            return (self._protocol, self._port)
        return (self._address, self._protocol, self._port)


@lru_cache(maxsize=1 << 12)
def _pool(protocol: str, nodeport: bool, local: bool, size: int) -> Pool:  # noqa: FBT001
    return Pool(PoolKind(protocol, nodeport, local), size)


@lru_cache(maxsize=1 << 12)
def _cluster_policy(pool: Pool) -> ClusterPolicy:
    return ClusterPolicy(pool)
