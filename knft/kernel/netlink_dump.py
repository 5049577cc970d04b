"""Reads lists from the kernel through netlink: short ones such as addresses of interfaces, and conntrack entries.

See docs/design/netlink-decoding.md.
"""

import os
import socket
from collections.abc import Callable

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
    items: list[bytes] = []

    def begin() -> Callable[[bytes], None]:
        items.clear()
        return items.append

    stream(protocol, kind, header, item_kind, begin)
    return items


def stream(
    protocol: int, kind: int, header: bytes, item_kind: int, begin: Callable[[], Callable[[bytes], None]]
) -> None:
    """Pass the payload of each item to a function, which ``begin`` returns anew for each attempt; see ``dump``."""
    with open_netlink(protocol, _ANSWER_TIMEOUT_SECONDS) as netlink:
        for sequence in range(1, 1 + ATTEMPTS):
            netlink.send(messages.request(kind, messages.DUMP, sequence, header))
            if _receive(netlink, sequence, item_kind, begin()):
                break


def _receive(netlink: socket.socket, sequence: int, item_kind: int, add: Callable[[bytes], None]) -> bool:
    """Pass each item to ``add``; return whether the list did not change while the kernel sent it."""
    is_complete = True
    while True:
        buffer = receive(netlink)
        for kind, flags, number, start, end in messages.messages(buffer):
            if number != sequence:
                continue
            is_complete &= not flags & messages.INTERRUPTED
            if kind == item_kind:
                add(buffer[start:end])
            elif kind in (messages.ERROR, messages.DONE):
                code = messages.error_code(buffer, start, end)
                if code:
                    raise OSError(code, os.strerror(code))
                return is_complete
