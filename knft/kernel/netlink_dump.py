"""Reads short lists from the kernel through netlink: addresses of interfaces, and names of nftables tables and sets.

See docs/design/netlink-decoding.md.
"""

import os
import socket

from knft.kernel import netlink_messages as messages
from knft.kernel.netlink_socket import open_netlink, receive

ATTEMPTS = 5
"""How often knft sends the request in all, if the kernel reports that the list changed during the dump.

The last answer is used even then; it may lack items."""
_ANSWER_TIMEOUT_SECONDS = 30


def dump(protocol: int, kind: int, header: bytes, item_kind: int) -> list[bytes]:
    """Return the payloads of all items: the header of the protocol, and attributes.

    ``protocol`` is a number such as NETLINK_ROUTE, ``kind`` that of the request, and ``header`` the header of the
    protocol in the request. Raises OSError if the kernel refuses, and TimeoutError if it does not answer.
    """
    with open_netlink(protocol, _ANSWER_TIMEOUT_SECONDS) as netlink:
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
        buffer = receive(netlink)
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
