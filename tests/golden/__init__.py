"""What no Service changes, as nft text: one file for each family and configuration, to be read by people.

``ip.nft`` and ``ip6.nft`` hold all chains of the skeleton and one chain of each shared kind, as they are where pods are
told by their range. The other files hold the chains that another configuration writes differently, and no others.
``python -m tests.golden`` writes them anew: then the difference is what has to be read.
"""

from pathlib import Path

from knft.config import Config
from knft.model.names import Family
from knft.nft.codec.tables import table_text
from knft.nft.objects import Chain, Table
from knft.render import layout
from knft.render.names import NFT_FAMILIES, TABLE
from knft.render.pools import ClusterPolicy, LocalPolicy, Pool, PoolKind, SharedChain, shared_chain

FOLDER = Path(__file__).parent
PODS = ("10.244.0.0/16", "fd00:10:244::/48")
USUAL = Config("node-1", cluster_cidrs=PODS)
OTHERS = {
    "masquerade-all": Config("node-1", cluster_cidrs=PODS, masquerade_all=True),
    "pods-by-interface": Config("node-1", detect_local_mode="InterfaceNamePrefix", pod_interface="veth*"),
    "node-ports-everywhere": Config("node-1", cluster_cidrs=PODS, nodeport_addresses=("all",)),
}


def _shared() -> tuple[SharedChain, ...]:
    """Return one chain of each kind, and of each size that is written in its own way."""
    three, one = Pool(PoolKind("tcp"), 3), Pool(PoolKind("tcp"), 1)
    here = Pool(PoolKind("tcp", local=True), 2)
    by_number = Pool(PoolKind("udp", nodeport=True), 2)
    return (
        one,
        three,
        here,
        by_number,
        Pool(PoolKind("sctp", nodeport=True, local=True), 2),
        ClusterPolicy(three),
        ClusterPolicy(by_number),
        LocalPolicy(three, here),
        LocalPolicy(one, Pool(here.kind, 0)),
    )


def chains(family: Family, config: Config) -> tuple[Chain, ...]:
    """Return the chains that the files are about."""
    return (*layout.base_chains(family, config), *(shared_chain(spec, family, config) for spec in _shared()))


def texts(family: Family) -> dict[str, str]:
    """Return what each file of a family has to say, by name."""
    usual, family_name = chains(family, USUAL), NFT_FAMILIES[family]
    found = {f"{family_name}.nft": usual}
    for name, config in OTHERS.items():
        found[f"{family_name}-{name}.nft"] = tuple(chain for chain in chains(family, config) if chain not in usual)
    return {name: _text(family, written) for name, written in found.items()}


def _text(family: Family, written: tuple[Chain, ...]) -> str:
    return table_text(Table(NFT_FAMILIES[family], TABLE, "", (), written, {}))
