"""Reads small lists from the kernel through netlink: addresses of interfaces, and nftables tables.

See docs/design/netlink-decoding.md.
"""

import os
import socket
import struct

from knft.kernel import netlink_messages as messages

ATTEMPTS = 5
"""How often a dump is started in all if the list changes meanwhile; the last one is used although it may lack items."""
_ANSWER_TIMEOUT_SECONDS = 30
_READ_BYTES = 64 * 1024  # the kernel's buffers have up to 32 KiB


def dump(protocol: int, kind: int, header: bytes, item_kind: int) -> list[bytes]:
    """Return the payloads of all items: the header of the protocol, and attributes.

    ``protocol`` is a number such as NETLINK_ROUTE, ``kind`` that of the request, and ``header`` the header of the
    protocol in the request. Raises OSError if the kernel refuses, and TimeoutError if it does not answer.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol) as netlink:
        netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _ANSWER_TIMEOUT_SECONDS, 0))
        for sequence in range(1, 1 + ATTEMPTS):
            netlink.send(messages.request(kind, messages.DUMP, sequence, header))
            items, is_complete = _receive(netlink, sequence, item_kind)
            if is_complete:
                break
        return items


def _receive(netlink: socket.socket, sequence: int, item_kind: int) -> tuple[list[bytes], bool]:
    """Return the items, and whether the list did not change while the kernel sent it."""
    items: list[bytes] = []
    is_complete = True
    while True:
        buffer = netlink.recv(_READ_BYTES)
        for kind, flags, number, start, end in messages.messages(buffer):
            if number != sequence:
                continue
            is_complete &= not flags & messages.INTERRUPTED
            if kind == item_kind:
                items.append(buffer[start:end])
            elif kind in (messages.ERROR, messages.DONE):
                code = messages.error_code(buffer, start, end)
                if code:
                    raise OSError(code, os.strerror(code))
                return items, is_complete
