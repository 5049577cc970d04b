"""The chains that do not depend on Services, as nft text: one file for each family and configuration.

``ip.nft`` and ``ip6.nft`` contain all static chains and one shared chain of each kind, for pods detected by CIDR.
``ip-declarations.nft`` and ``ip6-declarations.nft`` declare the sets and maps. The other files contain only the chains
that differ with another configuration. ``python -m tests.golden`` writes the files; review the difference afterwards.
"""

from pathlib import Path

from knft.config import Config
from knft.families import Family
from knft.nft.codec.tables import table_text
from knft.nft.objects import Chain, Table
from knft.render import layout
from knft.render.names import TABLE
from knft.render.pools import (
    AffinityPool,
    ExternalClusterChain,
    ExternalLocalChain,
    KnownClientsChain,
    PoolChain,
    PoolKind,
    SharedChain,
    shared_chain,
)

FOLDER = Path(__file__).parent
PODS = ("10.244.0.0/16", "fd00:10:244::/48")
DEFAULT = Config("node-1", cluster_cidrs=PODS)
OTHERS = {
    "masquerade-all": Config("node-1", cluster_cidrs=PODS, masquerade_all=True),
    "pods-by-node": Config("node-1", detect_local_mode="NodeCIDR"),
    "pods-by-interface": Config("node-1", detect_local_mode="InterfaceNamePrefix", pod_interface="veth*"),
    "node-ports-everywhere": Config("node-1", cluster_cidrs=PODS, nodeport_addresses=("all",)),
    "service-counters": Config("node-1", cluster_cidrs=PODS, service_counters=True),
    "localhost-nodeports": Config(
        "node-1", cluster_cidrs=PODS, nodeport_addresses=("127.0.0.0/8", "::1/128"), localhost_nodeports=True
    ),
    "localhost-nodeports-rejected": Config("node-1", cluster_cidrs=PODS, localhost_nodeports=True),
    "drop-invalid-packets": Config("node-1", cluster_cidrs=PODS, drop_invalid_packets=True),
}


def _shared() -> tuple[SharedChain, ...]:
    """Return one shared chain of each kind, and of each size with rules of its own form."""
    three, one = PoolChain(PoolKind("tcp"), 3), PoolChain(PoolKind("tcp"), 1)
    local = PoolChain(PoolKind("tcp", local=True), 2)
    nodeport = PoolChain(PoolKind("udp", nodeport=True), 2)
    return (
        one,
        three,
        local,
        nodeport,
        PoolChain(PoolKind("sctp", nodeport=True, local=True), 2),
        ExternalClusterChain(three),
        ExternalClusterChain(nodeport),
        ExternalLocalChain(three, local),
        ExternalLocalChain(one, PoolChain(local.kind, 0)),
        *(KnownClientsChain(three.kind, 10800, 0), AffinityPool(three.kind, 3, 10800)),
        *(KnownClientsChain(nodeport.kind, 60, 0), AffinityPool(nodeport.kind, 2, 60)),
        ExternalClusterChain(AffinityPool(three.kind, 3, 10800)),
    )


def chains(family: Family, config: Config) -> tuple[Chain, ...]:
    """Return the chains that the files contain."""
    return (*layout.constant_chains(family, config), *(shared_chain(spec, family, config) for spec in _shared()))


def texts(family: Family) -> dict[str, str]:
    """Return the text of each file of a family, by name."""
    default, family_name = chains(family, DEFAULT), family.nft
    found = {f"{family_name}.nft": default}
    for name, config in OTHERS.items():
        found[f"{family_name}-{name}.nft"] = tuple(chain for chain in chains(family, config) if chain not in default)
    declarations = {f"{family_name}-declarations.nft": table_text(layout.declarations(family))}
    return declarations | {name: _text(family, written) for name, written in found.items()}


def _text(family: Family, written: tuple[Chain, ...]) -> str:
    return table_text(Table(family.nft, TABLE, "", (), written, {}))
