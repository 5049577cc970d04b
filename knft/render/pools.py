"""Shared chains: pool chains and policy chains, which all Services with the same number of endpoints share.

A pool chain (``PoolChain``) picks one of n endpoints at random from an endpoint map. The key contains the frontend to
which the packet was sent, so no chain belongs to a Service, and scaling a Service only changes the chain of its
frontends' verdicts.

A policy chain handles external traffic before it continues in a pool chain: ``ExternalClusterChain`` with
externalTrafficPolicy Cluster, ``ExternalLocalChain`` with Local. Traffic to cluster IPs needs none. The policies of a
Service are in ``knft.model.service_port``; ``knft.decide`` applies them.
"""

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

from msgspec import Struct

from knft.config import Config
from knft.families import Family
from knft.model.plan import TrafficAction
from knft.nft import expressions as nft
from knft.nft.objects import Chain
from knft.render.names import INSIDE_CIDRS, POD_CIDRS

COMMON_SIZES = range(1, 65)
"""Sizes for which all pool chains are created in advance, when the first chain that uses their map is created.

Adding a rule that uses a map walks the whole map: 13 ms for 100 000 endpoints on Linux 6.18.
"""


MAX_POOL_SIZE = 1 << 16
"""The number of indexes in the keys of endpoint maps."""


class PoolKind(Struct, frozen=True, gc=False):
    """The kind of a pool, which has one endpoint map.

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
    def chain_prefix(self) -> str:
        """The prefix of the names of this kind's pool chains."""
        return f"{self._prefix}pool-{self.protocol}-"


class PoolChain(Struct, frozen=True, gc=False):
    """The pool chain that picks one of ``size`` endpoints."""

    kind: PoolKind
    size: int

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"{self.kind.chain_prefix}{self.size}"


class ExternalClusterChain(Struct, frozen=True, gc=False):
    """The policy chain for external traffic with policy Cluster: it masquerades, then continues in ``pool``."""

    pool: PoolChain

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

    cluster: PoolChain
    local: PoolChain

    @property
    def name(self) -> str:
        """The chain's name: ``external-local-pool-tcp-1-of-3`` has one local and three cluster endpoints."""
        return f"external-{self.local.name}-of-{self.cluster.size}"


SharedChain = PoolChain | ExternalClusterChain | ExternalLocalChain
"""A description of a pool chain or policy chain, without its rules."""


@lru_cache(maxsize=1 << 12)
def shared_chain(chain: SharedChain, family: Family, config: Config) -> Chain:
    """Return the chain that ``chain`` describes, with its rules."""
    match chain:
        case PoolChain():
            return Chain(chain.name, _pool_rules(chain, family))
        case ExternalClusterChain(pool):
            return Chain(chain.name, external_cluster_rules(pool.name, config))
        case ExternalLocalChain(cluster, local):
            local_name = local.name if local.size else None
            return Chain(chain.name, external_local_rules(cluster.name, local_name, family, config))


def _pool_rules(pool: PoolChain, family: Family) -> tuple[nft.Rule, ...]:
    # The second rule serves a packet that looked up its verdict before a commit and its endpoint after it: index 0
    # exists as long as the pool is not empty.
    moduli = (pool.size, 1) if pool.size > 1 else (1,)
    return tuple(nft.Rule((dnat_to_endpoint(pool.kind, modulus, family),)) for modulus in moduli)


def dnat_to_endpoint(kind: PoolKind, modulus: int, family: Family) -> nft.DnatFromMap:
    """Return a statement that translates to a random one of the first ``modulus`` endpoints of the packet's frontend.

    It has no effect if the frontend has no endpoint with that index.
    """
    protocol = family.nft
    port, number = nft.Payload(kind.protocol, "dport"), nft.RandomNumber(modulus)
    frontend = (port,) if kind.nodeport else (nft.Payload(protocol, "daddr"), port)
    return nft.DnatFromMap(protocol, nft.Concat((*frontend, number)), kind.map)


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
    r"(?P<external>external-)?(?P<local>local-)?(?P<nodeport>nodeport-)?pool-(?P<protocol>tcp|udp|sctp)-"
    r"(?P<size>0|[1-9]\d{0,4})(?:-of-(?P<cluster>0|[1-9]\d{0,4}))?"
)


def parse_shared_chain(name: str) -> SharedChain | None:
    """Return the shared chain with that name; None if the name is not that of a shared chain."""
    found = _NAME.fullmatch(name)
    if found is None or max(int(found["size"]), int(found["cluster"] or 0)) > MAX_POOL_SIZE:
        return None
    nodeport = found["nodeport"] is not None
    pool = PoolChain(PoolKind(found["protocol"], nodeport, found["local"] is not None), int(found["size"]))
    match found["external"], found["cluster"]:
        case None, None:
            return pool
        case str(), None:
            return ExternalClusterChain(pool)
        case str(), str(size) if pool.kind.local:
            return ExternalLocalChain(PoolChain(PoolKind(found["protocol"], nodeport), int(size)), pool)
        case _:
            return None


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


def with_target_pools(chain: SharedChain) -> tuple[SharedChain, ...]:
    """Return a shared chain and the pools that its rules go to."""
    match chain:
        case ExternalClusterChain(pool):
            return (chain, pool)
        case ExternalLocalChain(cluster, local):
            return (chain, cluster, local) if local.size else (chain, cluster)
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
