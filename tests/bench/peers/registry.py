"""The peers: their layout, and the program that loads it."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from tests.bench.peers.iptables import IptablesLayout
from tests.bench.peers.layout import Layout
from tests.bench.peers.nftables import NftablesLayout, share_of_anonymous_maps, share_of_endpoint_chains

_EMPTY = ("*filter", "COMMIT", "*nat", "COMMIT")


class Peer(Struct, frozen=True):
    """A peer. The program ``clearing`` reads ``clear`` to remove all rules."""

    layout: Callable[[], Layout]
    command: tuple[str, ...]
    clearing: tuple[str, ...]
    clear: tuple[str, ...]


def _nftables(layout: Callable[[], Layout]) -> Peer:
    command = ("nft", "-f", "-")
    return Peer(layout, command, command, ("delete table ip kube-proxy",))


def _iptables(backend: str) -> Peer:
    restore = (f"iptables-{backend}-restore", "-w", "5")
    return Peer(IptablesLayout, (*restore, "--noflush", "--counters"), restore, _EMPTY)


PEERS: Mapping[str, Peer] = {
    "kube-proxy 1.36": _nftables(lambda: NftablesLayout(share_of_anonymous_maps, marks_by_chain=False)),
    "iptables-legacy": _iptables("legacy"),
    "kube-proxy 1.35": _nftables(lambda: NftablesLayout(share_of_endpoint_chains, marks_by_chain=True)),
    "iptables-nft": _iptables("nft"),
}
