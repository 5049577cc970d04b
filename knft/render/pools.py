"""Shared chains: those that all Services share that have the same number of endpoints, policies and affinity timeout.

A pool chain (``PoolChain``) picks one of n endpoints at random from an endpoint map. The key contains the frontend to
which the packet was sent, so no chain belongs to a Service, and scaling a Service only changes the chain of its
frontends' verdicts.

An affinity pool chain (``AffinityPool``) precedes the pool chain of Service ports with session affinity. It sends a
client to the endpoint that it reached before, with the rules of ``KnownClientsChain`` (``knft.render.affinity``).

A hash pool chain (``HashPool``) picks the endpoint by a hash of the client (``knft.render.hashing``).

A policy chain handles external traffic before it continues in a pool chain: ``ExternalClusterChain`` with
externalTrafficPolicy Cluster, ``ExternalLocalChain`` with Local. Traffic to cluster IPs needs none. The policies of a
Service are in ``knft.model.service_port``; ``knft.decide`` applies them.

``ResetChain`` is for frontends without endpoints.
"""

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

from msgspec import Struct, structs

from knft.config import Config
from knft.families import Family
from knft.model.plan import TrafficAction
from knft.nft import expressions as nft
from knft.nft.objects import Chain
from knft.render.affinity import EndpointLookup, affinity_rules, block_end, block_starts, known_rules
from knft.render.frontends import TrafficClass
from knft.render.hashing import hash_rules
from knft.render.names import (
    COUNTING_CHAINS,
    INSIDE_CIDRS,
    POD_CIDRS,
    REJECT_CHAIN,
    RESET_PREFIX,
    endpoint_ids_map,
    numbers_map,
)

COMMON_SIZES = range(1, 65)
"""Sizes for which all pool chains are created in advance, when the first chain that uses their map is created.

Adding a rule that uses a map walks the whole map: 13 ms for 100 000 endpoints on Linux 6.18.
"""


MAX_POOL_SIZE = 1 << 16
"""The number of indexes in the keys of endpoint maps."""


class PoolKind(Struct, frozen=True, gc=False):
    """The kind of a pool, which has one endpoint map, and one map of endpoint IDs.

    It consists of the protocol, NodePorts or frontends with an address, and local or cluster endpoints.
    Cluster endpoints are those for traffic with policy Cluster.
    """

    protocol: str
    nodeport: bool = False
    local: bool = False

    @property
    def _prefix(self) -> str:
        return ("local-" if self.local else "") + ("nodeport-" if self.nodeport else "")

    @property
    def map(self) -> str:
        """The name of the endpoint map."""
        return f"{self._prefix}endpoints-{self.protocol}"

    @property
    def ids_map(self) -> str:
        """The name of the map of endpoint IDs, which has an element for each endpoint of a sticky Service port."""
        return endpoint_ids_map(self.map)

    @property
    def chain_prefix(self) -> str:
        """The prefix of the names of this kind's pool chains."""
        return f"{self._prefix}pool-{self.protocol}-"

    def hash_prefix(self, *, by_port: bool) -> str:
        """Return the prefix of the names of this kind's hash pool chains."""
        return f"{self._prefix}{'maglev' if by_port else 'source-hash'}-{self.protocol}-"

    @property
    def known_prefix(self) -> str:
        """A part of the names of this kind's chains for known clients."""
        return f"{self._prefix}known-{self.protocol}-"


class PoolChain(Struct, frozen=True, gc=False):
    """The pool chain that picks one of ``size`` endpoints."""

    kind: PoolKind
    size: int

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"{self.kind.chain_prefix}{self.size}"


class KnownClientsChain(Struct, frozen=True, gc=False):
    """The chain that sends clients to the endpoints that they reached before, if these have an index of one block.

    The block begins with the index ``start``; ``timeout`` is in seconds.
    """

    kind: PoolKind
    timeout: int
    start: int

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"affinity-{self.timeout}-{self.kind.known_prefix}{self.start}"


class AffinityPool(Struct, frozen=True, gc=False):
    """The chain that remembers clients of ``size`` endpoints for ``timeout`` seconds; others continue in the pool."""

    kind: PoolKind
    size: int
    timeout: int

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"affinity-{self.timeout}-{self.pool.name}"

    @property
    def pool(self) -> PoolChain:
        """The pool chain that picks an endpoint for clients that cannot be remembered."""
        return PoolChain(self.kind, self.size)

    def known_clients(self) -> tuple[KnownClientsChain, ...]:
        """Return the chains to which it sends known clients."""
        return tuple(KnownClientsChain(self.kind, self.timeout, start) for start in block_starts(self.size))


class HashPool(Struct, frozen=True, gc=False):
    """The chain that picks an endpoint by the hash of the client, from a table of ``size`` slots.

    With ``by_port``, the hash includes the source port.
    """

    kind: PoolKind
    size: int
    by_port: bool

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"{self.kind.hash_prefix(by_port=self.by_port)}{self.size}"


Pool = PoolChain | AffinityPool | HashPool


class ExternalClusterChain(Struct, frozen=True, gc=False):
    """The policy chain for external traffic with policy Cluster: it masquerades, then continues in ``pool``."""

    pool: Pool

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"external-{self.pool.name}"


class ExternalLocalChain(Struct, frozen=True, gc=False):
    """The policy chain for external traffic with policy Local (docs/behaviour/nftables.md#service-ports).

    Traffic from pods and from the node continues in ``cluster``, all other traffic in ``local``. If ``local`` is empty,
    the chain ends without a verdict, and the filter chains then drop the packet (``no-endpoint-services`` and
    ``no-endpoint-nodeports``).
    """

    cluster: Pool
    local: Pool

    @property
    def name(self) -> str:
        """The chain's name: ``external-local-pool-tcp-1-of-3`` has one local and three cluster endpoints."""
        return f"external-{self.local.name}-of-{self.cluster.size}"


class ResetChain(Struct, frozen=True, gc=False):
    """The chain for packets to frontends without endpoints of Services with ``knft.dev/drain: reset``.

    It sends a reset to a client whose connection was ended, and applies ``otherwise`` to packets that open one. The
    client would ignore what ``otherwise`` sends.
    """

    otherwise: nft.Goto | nft.Drop

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"{RESET_PREFIX}{self.otherwise.chain if isinstance(self.otherwise, nft.Goto) else _DROP}"


_DROP = "drop"
_RESET_CHAINS = {
    chain.name: chain
    for chain in (ResetChain(nft.Drop()), *(ResetChain(nft.Goto(name)) for name in (REJECT_CHAIN, *COUNTING_CHAINS)))
}

SharedChain = (
    PoolChain | KnownClientsChain | AffinityPool | HashPool | ExternalClusterChain | ExternalLocalChain | ResetChain
)
"""A description of a shared chain, without its rules."""


@lru_cache(maxsize=1 << 12)
def shared_chain(chain: SharedChain, family: Family, config: Config) -> Chain:
    """Return the chain that ``chain`` describes, with its rules."""
    match chain:
        case PoolChain() | HashPool():
            rules = _pool_rules(chain, family) if isinstance(chain, PoolChain) else _hash_pool_rules(chain, family)
            return Chain(chain.name, rules)
        case KnownClientsChain(kind, timeout, start):
            indexes = range(start, block_end(start))
            return Chain(chain.name, known_rules(_endpoint_lookup(kind, family), indexes, timeout))
        case AffinityPool(kind, size, timeout):
            known = [each.name for each in chain.known_clients()]
            # Nothing leads to a pool without endpoints, but another program may have made a chain of that name.
            first = affinity_rules(_endpoint_lookup(kind, family), max(size, 1), timeout, known)
            return Chain(chain.name, (*first, nft.Rule((nft.ClearPriority(), nft.Goto(chain.pool.name)))))
        case ExternalClusterChain(pool):
            return Chain(chain.name, external_cluster_rules(pool.name, config))
        case ExternalLocalChain(cluster, local):
            local_name = local.name if local.size else None
            return Chain(chain.name, external_local_rules(cluster.name, local_name, family, config))
        case ResetChain(otherwise):
            opens_connection = nft.Match(nft.Payload("tcp", "flags"), "syn", "in")
            return Chain(chain.name, (nft.Rule((opens_connection, otherwise)), nft.Rule((nft.RejectWithReset(),))))


def _pool_rules(pool: PoolChain, family: Family) -> tuple[nft.Rule, ...]:
    # The second rule serves a packet that looked up its verdict before a commit and its endpoint after it: index 0
    # exists as long as the pool is not empty.
    moduli = (pool.size, 1) if pool.size > 1 else (1,)
    lookup = _endpoint_lookup(pool.kind, family)
    return tuple(nft.Rule((lookup.translate(nft.RandomNumber(modulus)),)) for modulus in moduli)


def _hash_pool_rules(pool: HashPool, family: Family) -> tuple[nft.Rule, ...]:
    numbers = numbers_map(pool.kind.protocol, nodeport=pool.kind.nodeport)
    lookup = structs.replace(_endpoint_lookup(pool.kind, family), ids=numbers)
    traffic_class: TrafficClass = "local" if pool.kind.local else "cluster"
    # Nothing leads to a pool without endpoints, but another program may have made a chain of that name.
    size = max(pool.size, 1)
    return tuple(hash_rules(lookup, pool.kind.protocol, traffic_class, size, by_port=pool.by_port))


def _endpoint_lookup(kind: PoolKind, family: Family) -> EndpointLookup:
    """Return how rules find the endpoints of the packet's frontend."""
    port = nft.Payload(kind.protocol, "dport")
    frontend = (port,) if kind.nodeport else (nft.Payload(family.nft, "daddr"), port)
    return EndpointLookup(family.nft, frontend, kind.map, kind.ids_map)


def external_cluster_rules(cluster: str, config: Config) -> tuple[nft.Rule, ...]:
    """Return the rules for external traffic with policy Cluster, which continues in the chain ``cluster``."""
    return (nft.Rule((nft.SetMark(config.masquerade_mark), nft.Goto(cluster)), "masquerade"),)


def external_rules(
    action: TrafficAction, chains: Callable[[str], str], family: Family, config: Config
) -> tuple[nft.Rule, ...]:
    """Return the rules for external traffic to a Service port with chains of its own.

    ``chains`` returns the name of its chain for traffic class ``cluster`` or ``local``.
    """
    if action is TrafficAction.CLUSTER:
        return external_cluster_rules(chains("cluster"), config)
    local = chains("local") if action is TrafficAction.LOCAL else None
    return external_local_rules(chains("cluster"), local, family, config)


def external_local_rules(cluster: str, local: str | None, family: Family, config: Config) -> tuple[nft.Rule, ...]:
    """Return the rules for external traffic with policy Local.

    Traffic from pods and from the node continues in the chain ``cluster``, all other traffic in ``local``, if any.
    """
    to_cluster = nft.Goto(cluster)
    from_node = nft.Match(nft.FibType("saddr"), "local")
    mark = nft.SetMark(config.masquerade_mark)
    rules = (
        nft.Rule((match_pod_source(family, config), to_cluster), "short-circuit pod traffic"),
        # The rule comments are kube-proxy's; by "local traffic" it means the node's own.
        nft.Rule((from_node, mark, to_cluster), "short-circuit local traffic"),
    )
    return rules if local is None else (*rules, nft.Rule((nft.Goto(local),)))


_NAME = re.compile(
    r"(?P<external>external-)?(?:affinity-(?P<timeout>[1-9]\d{0,4})-(?!.*hash|.*maglev))?(?P<local>local-)?"
    r"(?P<nodeport>nodeport-)?(?P<purpose>pool|known|maglev|source-hash)-(?P<protocol>tcp|udp|sctp)-"
    r"(?P<size>0|[1-9]\d{0,4})(?:-of-(?P<cluster>0|[1-9]\d{0,4}))?",
    re.ASCII,
)


def parse_shared_chain(name: str) -> SharedChain | None:
    """Return the shared chain with that name; None if the name is not that of a shared chain."""
    found = _NAME.fullmatch(name)
    if found is None or max(int(found["size"]), int(found["cluster"] or 0)) > MAX_POOL_SIZE:
        return _RESET_CHAINS.get(name)
    nodeport, timeout, size = found["nodeport"] is not None, int(found["timeout"] or 0), int(found["size"])
    kind = PoolKind(found["protocol"], nodeport, found["local"] is not None)
    if found["purpose"] == "known":
        known = KnownClientsChain(kind, timeout, size)
        is_block = timeout > 0 and size < MAX_POOL_SIZE and size in block_starts(size + 1)
        return known if is_block and found["external"] is None and found["cluster"] is None else None
    pool = _pool(found["purpose"], kind, size, timeout)
    match found["external"], found["cluster"]:
        case None, None:
            return pool
        case str(), None:
            return ExternalClusterChain(pool)
        case str(), str(cluster) if kind.local:
            return ExternalLocalChain(
                structs.replace(pool, kind=PoolKind(found["protocol"], nodeport), size=int(cluster)), pool
            )
        case _:
            return None


def _pool(purpose: str, kind: PoolKind, size: int, timeout: int) -> Pool:
    return pool_chain(kind, size, timeout) if purpose == "pool" else HashPool(kind, size, purpose == "maglev")


def hashes_clients(chain: str) -> bool:
    """Tell whether the name of a shared chain is that of one with consistent hashing."""
    return "maglev-" in chain or "source-hash-" in chain


def configured_shared_chain(name: str, config: Config) -> SharedChain | None:
    """Return the shared chain with that name; None also if it leads to counters, and they are off."""
    if name.removeprefix(RESET_PREFIX) in COUNTING_CHAINS and not config.service_counters:
        return None
    return parse_shared_chain(name)


def pool_chain(kind: PoolKind, size: int, timeout: int) -> PoolChain | AffinityPool:
    """Return the chain that serves the clients of a pool; ``timeout`` is 0 without session affinity."""
    return AffinityPool(kind, size, timeout) if timeout else PoolChain(kind, size)


def affinity_timeout(chain: SharedChain) -> int:
    """Return for how many seconds a shared chain remembers clients; 0 if it does not."""
    match chain:
        case KnownClientsChain() | AffinityPool():
            return chain.timeout
        case ExternalClusterChain(pool) | ExternalLocalChain(pool):
            return affinity_timeout(pool)
        case _:
            return 0


def match_pod_source(family: Family, config: Config) -> nft.Match:
    """Return a match for packets from local pods (docs/behaviour/configuration.md#local-traffic)."""
    if config.detects_by_interface:
        return nft.Match(nft.Meta("iifname"), nft.Interface(config.pod_interface))
    return nft.Match(nft.Payload(family.nft, "saddr"), _match_operand(family, config, POD_CIDRS))


def match_outside_source(family: Family, config: Config) -> nft.Match:
    """Return a match for packets that must be masqueraded if they are sent to a cluster IP.

    See docs/behaviour/configuration.md#local-traffic.
    """
    if config.detects_by_interface:
        return nft.Match(nft.Meta("iifname"), nft.Interface(config.pod_interface), "!=")
    return nft.Match(nft.Payload(family.nft, "saddr"), _match_operand(family, config, INSIDE_CIDRS), "!=")


def _match_operand(family: Family, config: Config, container: str) -> nft.Network | nft.Reference:
    # A fixed CIDR is written into the rule: a set lookup takes 0.1 us for each new connection.
    cidr = config.configured_pod_cidr(family)
    return nft.Network(cidr) if cidr is not None else nft.Reference(container)


def with_targets(chain: SharedChain) -> tuple[SharedChain, ...]:
    """Return a shared chain and the chains that a packet may reach through it."""
    match chain:
        case AffinityPool():
            return (chain, *chain.known_clients(), chain.pool)
        case ExternalClusterChain(pool):
            return (chain, *with_targets(pool))
        case ExternalLocalChain(cluster, local):
            return (chain, *with_targets(cluster), *(with_targets(local) if local.size else ()))
        case _:
            return (chain,)


def with_common_sizes(needed: Iterable[SharedChain], existing: Collection[str]) -> list[SharedChain]:
    """Return the chains to create, sorted by name: ``needed``, and the COMMON_SIZES of each new kind of pool.

    None of ``needed`` exists yet; ``existing`` are the names of the chains that do.
    """
    missing = {chain.name: chain for chain in needed}
    for kind in {chain.kind for chain in missing.values() if isinstance(chain, PoolChain)}:
        if not any(f"{kind.chain_prefix}{size}" in existing for size in COMMON_SIZES):
            common = (PoolChain(kind, size) for size in COMMON_SIZES)
            missing |= {pool.name: pool for pool in common}
    return [missing[name] for name in sorted(missing)]
