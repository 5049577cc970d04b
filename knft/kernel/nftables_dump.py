"""Reads the lists of tables, chains and sets of nf_tables through netlink, without their contents."""

import socket
import struct

from msgspec import Struct

from knft.kernel import netlink_dump, netlink_messages

_NETFILTER = 12  # NETLINK_NETFILTER
_SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
NEW_TABLE, GET_TABLE, NEW_CHAIN, GET_CHAIN, NEW_SET, GET_SET = (
    _SUBSYSTEM | kind
    for kind in (0, 1, 3, 4, 9, 10)  # NFT_MSG_...
)
_NFGENMSG = struct.Struct("=BBH")
NFPROTO_NAMES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}  # NFPROTO_...


class Item(Struct, frozen=True):
    """A table, chain or set: nft's name of the family, and the payloads of its attributes."""

    family: str
    fields: dict[int, bytes]

    def text(self, number: int) -> str:
        """Return an attribute that is a name."""
        return self.fields[number].rstrip(b"\0").decode(errors="replace")


def dump(kind: int, item_kind: int) -> list[Item]:
    """Return the tables, chains or sets of all families; raise OSError if the kernel refuses."""
    payloads = netlink_dump.dump(_NETFILTER, kind, _NFGENMSG.pack(socket.AF_UNSPEC, 0, 0), item_kind)
    return [
        Item(
            NFPROTO_NAMES.get(payload[0], str(payload[0])),
            netlink_messages.payloads(payload, _NFGENMSG.size, len(payload)),
        )
        for payload in payloads
    ]
