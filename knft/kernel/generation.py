# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Reads the generation ID of nf_tables, which every transaction on any table of the network namespace changes.

See docs/design/netlink-decoding.md.
"""

import socket
import struct

from knft.errors import KernelError
from knft.kernel import nftables_messages

_GET_GENERATION = 10 << 8 | 16  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETGEN
_REQUEST = 1
_HEADER = struct.Struct("=IHHIIBBH")  # nlmsghdr and nfgenmsg
_ID = 1  # NFTA_GEN_ID
_ANSWER_BYTES = 8192


def generation(netlink: socket.socket) -> int:
    """Return the generation ID of a netlink socket's network namespace; raise KernelError if the kernel refuses."""
    try:
        netlink.send(_HEADER.pack(_HEADER.size, _GET_GENERATION, _REQUEST, 0, 0, 0, 0, 0))
        answer = next(nftables_messages.split(netlink.recv(_ANSWER_BYTES)), None)
    except OSError as error:
        msg = f"cannot read the generation ID of nf_tables: {error}"
        raise KernelError(msg) from error
    if answer is None or answer.kind != nftables_messages.NEW_GENERATION:
        msg = "cannot read the generation ID of nf_tables: the kernel refused"
        raise KernelError(msg)
    return int.from_bytes(answer.attribute(_ID), "big")
