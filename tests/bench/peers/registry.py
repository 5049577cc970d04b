"""The peers: their layout, and the program that loads it."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from tests.bench.cluster import Shape
from tests.bench.peers.iptables import IptablesLayout
from tests.bench.peers.layout import Layout
from tests.bench.peers.nftables import NftablesLayout, share_of_anonymous_maps, share_of_endpoint_chains

# kube-proxy 1.36 needs a minute for 100 sticky ports with 50 addresses each, so 10 000 Services would take hours.
_MAX_STICKY_SERVICES = 1000
_EMPTY = ("*filter", "COMMIT", "*nat", "COMMIT")


class Peer(Struct, frozen=True):
    """A peer. The program ``clearing`` reads ``clear`` to remove all rules.

    ``has_wide`` tells whether the layout has rules for wide Services.
    """

    layout: Callable[[], Layout]
    command: tuple[str, ...]
    clearing: tuple[str, ...]
    clear: tuple[str, ...]
    has_wide: bool = False

    def supports(self, shape: Shape) -> bool:
        """Tell whether the layout has rules for all Services of a cluster, and not too many of them.

        All layouts are IPv4 only.
        """
        if shape.affinity_seconds and shape.services > _MAX_STICKY_SERVICES:
            return False
        return shape.wide is None or (self.has_wide and not shape.is_dual_stack)


def _nftables(layout: Callable[[], Layout]) -> Peer:
    command = ("nft", "-f", "-")
    return Peer(layout, command, command, ("delete table ip kube-proxy",), has_wide=True)


def _iptables(backend: str) -> Peer:
    restore = (f"iptables-{backend}-restore", "-w", "5")
    return Peer(IptablesLayout, (*restore, "--noflush", "--counters"), restore, _EMPTY)


PEERS: Mapping[str, Peer] = {
    "kube-proxy 1.36": _nftables(lambda: NftablesLayout(share_of_anonymous_maps, marks_by_chain=False)),
    "iptables-legacy": _iptables("legacy"),
    "kube-proxy 1.35": _nftables(lambda: NftablesLayout(share_of_endpoint_chains, marks_by_chain=True)),
    "iptables-nft": _iptables("nft"),
}
