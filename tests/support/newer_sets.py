"""Creates sets as a newer nft does, through raw netlink, since a host usually has one libnftables.

The user data are those that nft 1.1.3 writes for ``set mine { type ipv4_addr; }``.
"""

import socket
import struct

from knft.kernel.nftables_dump import NFPROTO_NAMES

_NETFILTER = 12  # NETLINK_NETFILTER
_SUBSYSTEM = 10
_BEGIN, _END, _NEW_TABLE, _DELETE_TABLE, _NEW_SET = 0x10, 0x11, 0xA00, 0xA02, 0xA09
_REQUEST, _ACKNOWLEDGE, _CREATE = 1, 4, 0x400


def add_newer_set(family: str, table: str, name: str) -> None:
    """Add a set as a newer library does, and the table if it does not exist."""
    plain_type = _data(0, struct.pack("=I", 4)) + _data(1, b"")
    data = _data(0, struct.pack("=I", 2)) + _data(3, plain_type)
    attributes = (
        _text(1, table),
        _text(2, name),
        _attribute(3, bytes(4)),
        _attribute(4, struct.pack(">I", 7)),
        _attribute(5, struct.pack(">I", 4)),
        _attribute(10, struct.pack(">I", 1)),
        _attribute(13, data),
    )
    _send_transaction(family, (_NEW_TABLE, _CREATE, _text(1, table)), (_NEW_SET, _CREATE, b"".join(attributes)))


def delete_table(family: str, table: str) -> None:
    """Delete a table, which an older nft cannot do any more."""
    _send_transaction(family, (_DELETE_TABLE, 0, _text(1, table)))


def _data(kind: int, value: bytes) -> bytes:
    return struct.pack("BB", kind, len(value)) + value


def _attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _message(kind: int, flags: int, family: int, attributes: bytes = b"") -> bytes:
    resource = socket.htons(_SUBSYSTEM) if kind in (_BEGIN, _END) else 0
    body = struct.pack("=BBH", family, 0, resource) + attributes
    return struct.pack("=IHHII", 16 + len(body), kind, flags | _REQUEST, 0, 0) + body


def _send_transaction(family: str, *requests: tuple[int, int, bytes]) -> None:
    """Send one transaction; raise OSError if the kernel refuses it."""
    number = next(number for number, name in NFPROTO_NAMES.items() if name == family)
    messages = [_message(kind, flags | _ACKNOWLEDGE, number, attributes) for kind, flags, attributes in requests]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as netlink:
        netlink.bind((0, 0))
        netlink.send(b"".join((_message(_BEGIN, 0, 0), *messages, _message(_END, 0, 0))))
        for _ in requests:
            (error,) = struct.unpack_from("=i", netlink.recv(4096), 16)
            if error:
                raise OSError(-error, "the kernel refuses the transaction")
