"""Pools and the chains in front of them, shared by all Services with the same number of endpoints.

A pool chain picks one of n endpoints at random through an endpoint map; what tells Services apart is the key, the
frontend that the packet was sent to. So no chain belongs to a Service, and scaling one changes only which
chain its frontend leads to.
"""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from msgspec import Struct

from knft.config import Config
from knft.model.names import Family
from knft.nft import expressions as nft
from knft.nft.objects import Chain
from knft.render.names import INSIDE_CIDRS, NFT_FAMILIES, POD_CIDRS

COMMON_SIZES = range(1, 65)
"""Pool sizes that are made together, while their map is still empty: binding a rule to a map walks the map
(13 ms at 100 000 endpoints on Linux 6.18)."""


class PoolKind(Struct, frozen=True, gc=False):
    """Which endpoint map: of frontends with an address or of NodePorts, of all endpoints or of local ones."""

    protocol: str
    nodeport: bool = False
    local: bool = False

    @property
    def _prefix(self) -> str:
        return ("local-" if self.local else "") + ("nodeport-" if self.nodeport else "")

    @property
    def map(self) -> str:
        """The endpoint map's name."""
        return f"{self._prefix}endpoints-{self.protocol}"

    @property
    def chain_prefix(self) -> str:
        """What the names of this kind's pool chains begin with."""
        return f"{self._prefix}pool-{self.protocol}-"


class Pool(Struct, frozen=True, gc=False):
    """The chain that picks one of ``size`` endpoints."""

    kind: PoolKind
    size: int

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"{self.kind.chain_prefix}{self.size}"


class ClusterPolicy(Struct, frozen=True, gc=False):
    """The chain for outside traffic of policy Cluster: masquerade, then ``pool``."""

    pool: Pool

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"external-{self.pool.name}"


class LocalPolicy(Struct, frozen=True, gc=False):
    """The chain for outside traffic of policy Local (C.6, 13).

    Pods and the node itself are short-circuited to ``cluster``, all others go to ``local`` (size 0: to nobody).
    """

    cluster: Pool
    local: Pool

    @property
    def name(self) -> str:
        """The chain's name."""
        return f"external-{self.local.name}-of-{self.cluster.size}"


SharedChain = Pool | ClusterPolicy | LocalPolicy


@lru_cache(maxsize=1 << 12)
def shared_chain(spec: SharedChain, family: Family, config: Config) -> Chain:
    """Write a shared chain down."""
    match spec:
        case Pool():
            return Chain(spec.name, _pool_rules(spec, family))
        case ClusterPolicy(pool):
            mark = nft.SetMark(config.masquerade_mark)
            return Chain(spec.name, (nft.Rule((mark, nft.Goto(pool.name)), "masquerade"),))
        case LocalPolicy():
            return Chain(spec.name, tuple(_local_policy_rules(spec, family, config)))


def _pool_rules(pool: Pool, family: Family) -> tuple[nft.Rule, ...]:
    # The second rule catches a packet that read its verdict before a commit and its map after: index 0 is there as
    # long as the pool is not empty.
    moduli = (pool.size, 1) if pool.size > 1 else (1,)
    return tuple(nft.Rule((pick(pool.kind, modulus, family),)) for modulus in moduli)


def pick(kind: PoolKind, modulus: int, family: Family) -> nft.DnatFromMap:
    """Return what picks one of the first endpoints of a frontend, so many, and does nothing where there is none."""
    protocol = NFT_FAMILIES[family]
    port, number = nft.Payload(kind.protocol, "dport"), nft.RandomNumber(modulus)
    frontend = (port,) if kind.nodeport else (nft.Payload(protocol, "daddr"), port)
    return nft.DnatFromMap(protocol, nft.Concat((*frontend, number)), kind.map)


def _local_policy_rules(policy: LocalPolicy, family: Family, config: Config) -> Iterable[nft.Rule]:
    to_cluster = nft.Goto(policy.cluster.name)
    yield nft.Rule((from_pods(family, config), to_cluster), "short-circuit pod traffic")
    from_node = nft.Match(nft.FibType("saddr"), "local")
    mark = nft.SetMark(config.masquerade_mark)
    yield nft.Rule((from_node, mark, to_cluster), "short-circuit local traffic")
    if policy.local.size:
        yield nft.Rule((nft.Goto(policy.local.name),))


_NAME = re.compile(
    r"(?P<external>external-)?(?P<local>local-)?(?P<nodeport>nodeport-)?pool-(?P<protocol>tcp|udp|sctp)-(?P<size>\d+)"
    r"(?:-of-(?P<cluster>\d+))?"
)


def parse_shared_chain(name: str) -> SharedChain | None:
    """Return what a shared chain's name says, or None where it is no such name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    nodeport = found["nodeport"] is not None
    pool = Pool(PoolKind(found["protocol"], nodeport, found["local"] is not None), int(found["size"]))
    match found["external"], found["cluster"]:
        case None, None:
            return pool
        case str(), None:
            return ClusterPolicy(pool)
        case str(), str(size) if pool.kind.local:
            return LocalPolicy(Pool(PoolKind(found["protocol"], nodeport), int(size)), pool)
        case _:
            return None


def from_pods(family: Family, config: Config) -> nft.Match:
    """Return what tells packets of this cluster's pods (I.6)."""
    if config.detects_by_interface:
        return nft.Match(nft.Meta("iifname"), nft.Interface(config.pod_interface))
    return nft.Match(nft.Payload(NFT_FAMILIES[family], "saddr"), _range(family, config, POD_CIDRS))


def from_outside(family: Family, config: Config) -> nft.Match:
    """Return what tells packets that have to be masqueraded when they go to a cluster IP (I.6)."""
    if config.detects_by_interface:
        return nft.Match(nft.Meta("iifname"), nft.Interface(config.pod_interface), "!=")
    return nft.Match(nft.Payload(NFT_FAMILIES[family], "saddr"), _range(family, config, INSIDE_CIDRS), "!=")


def _range(family: Family, config: Config, container: str) -> nft.Network | nft.Reference:
    # A range that is known beforehand stands in the rule: looking it up in a set takes 0.1 us of each new connection.
    cidr = config.fixed_pod_cidr(family)
    return nft.Network(cidr) if cidr is not None else nft.Reference(container)


def with_pools(spec: SharedChain) -> tuple[SharedChain, ...]:
    """Return a shared chain and the pools that it leads to."""
    match spec:
        case ClusterPolicy(pool):
            return (spec, pool)
        case LocalPolicy(cluster, local):
            return (spec, cluster, local) if local.size else (spec, cluster)
        case _:
            return (spec,)


def with_common_sizes(needed: Iterable[SharedChain], existing: Collection[str]) -> list[SharedChain]:
    """Return ``needed``, which do not exist, and where a kind of pool is new its common sizes too, by name."""
    missing = {spec.name: spec for spec in needed}
    for kind in {spec.kind for spec in missing.values() if isinstance(spec, Pool)}:
        if not any(f"{kind.chain_prefix}{size}" in existing for size in COMMON_SIZES):
            common = (Pool(kind, size) for size in COMMON_SIZES)
            missing |= {pool.name: pool for pool in common}
    return [missing[name] for name in sorted(missing)]
