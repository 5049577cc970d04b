"""Deletes a set through netlink, without libnftables, which may be unable to read it.

    nlmsghdr:  length 4, kind 2, flags 2, sequence 4, port 4     in the host's byte order
    nfgenmsg:  family 1, version 1, resource 2
    attribute: length 2, kind 2, payload, padded with zeros to 4 bytes

A transaction is enclosed in two messages whose resource is the number of the nf_tables subsystem.
"""

import os
import socket
import struct

from knft.errors import KernelError

_NETFILTER = 12  # NETLINK_NETFILTER
_NF_TABLES = 10  # NFNL_SUBSYS_NFTABLES
_BEGIN, _END, _DELETE_SET = 0x10, 0x11, _NF_TABLES << 8 | 11  # NFNL_MSG_BATCH_BEGIN and _END, NFT_MSG_DELSET
_REQUEST, _ACKNOWLEDGE = 1, 4
_TABLE_NAME, _SET_NAME = 1, 2
_HEADER = struct.Struct("=IHHIIBBH")
_ERROR = struct.Struct("=i")
_ANSWER_BYTES = 8192
TIMEOUT_SECONDS = 10.0


def delete_set(family: int, table: str, name: str) -> None:
    """Delete a set or map of a table of the family with this number; raise KernelError if the kernel refuses."""
    names = _attribute(_TABLE_NAME, table) + _attribute(_SET_NAME, name)
    request = (
        _message(_BEGIN, _REQUEST, resource=_NF_TABLES)
        + _message(_DELETE_SET, _REQUEST | _ACKNOWLEDGE, family, names)
        + _message(_END, _REQUEST, resource=_NF_TABLES)
    )
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as netlink:
            netlink.settimeout(TIMEOUT_SECONDS)
            netlink.bind((0, 0))
            netlink.send(request)
            (error_number,) = _ERROR.unpack_from(netlink.recv(_ANSWER_BYTES), _HEADER.size - 4)
    except OSError as error:
        msg = f"cannot delete set {name} of table {table}: {error}"
        raise KernelError(msg) from error
    if error_number:
        msg = f"cannot delete set {name} of table {table}: {os.strerror(-error_number)}"
        raise KernelError(msg)


def _message(kind: int, flags: int, family: int = 0, attributes: bytes = b"", *, resource: int = 0) -> bytes:
    length = _HEADER.size + len(attributes)
    return _HEADER.pack(length, kind, flags, 0, 0, family, 0, socket.htons(resource)) + attributes


def _attribute(kind: int, text: str) -> bytes:
    payload = text.encode() + b"\0"
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)
