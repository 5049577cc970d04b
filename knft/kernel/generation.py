# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Reads the generation ID of nf_tables, which every transaction on any table of the network namespace changes.

See docs/design/netlink-decoding.md.
"""

import socket
import struct

from knft.errors import KernelError
from knft.kernel import netlink_messages, netlink_socket

_NEW_GENERATION, _GET_GENERATION = 10 << 8 | 15, 10 << 8 | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_...
_NFGENMSG = struct.Struct("=BBH")
_ID = 1  # NFTA_GEN_ID


def generation(netlink: socket.socket, sequence: int) -> int:
    """Return the generation ID of a netlink socket's network namespace.

    ``sequence`` is a number that no other request of the socket has. Raises KernelError if the kernel refuses.
    """
    try:
        netlink.send(netlink_messages.request(_GET_GENERATION, 0, sequence, _NFGENMSG.pack(socket.AF_UNSPEC, 0, 0)))
        buffer = netlink_socket.receive(netlink)
    except OSError as error:
        msg = f"cannot read the generation ID of nf_tables: {error.strerror}"
        raise KernelError(msg) from error
    for kind, _, number, start, end in netlink_messages.messages(buffer):
        if (kind, number) == (_NEW_GENERATION, sequence):
            fields = netlink_messages.payloads(buffer, start + _NFGENMSG.size, end)
            return int.from_bytes(fields.get(_ID, b""), "big")
    msg = "cannot read the generation ID of nf_tables: the kernel refused"
    raise KernelError(msg)
