"""Reads the routing policy rules that depend on packet marks (``ip rule ... fwmark``) through netlink.

See docs/design/netlink-decoding.md.
"""

import socket
import sys

from msgspec import Struct

from knft.errors import KernelError
from knft.families import Family
from knft.kernel import netlink_dump, netlink_messages

_NEW_RULE, _GET_RULE = 32, 34  # RTM_...
_PRIORITY, _MARK, _MASK = 6, 10, 16  # FRA_...
_HEADER_BYTES = 12  # fib_rule_hdr


class MarkRoute(Struct, frozen=True):
    """A routing policy rule, which applies to packets whose mark is ``mark`` in the bits of ``mask``."""

    family: Family
    priority: int
    mark: int
    mask: int


def mark_routes() -> tuple[MarkRoute, ...]:
    """Return the routing policy rules of both families that have a mark; raise KernelError if the kernel refuses."""
    found = []
    for family in Family:
        header = bytes([family.number]).ljust(_HEADER_BYTES, b"\0")
        try:
            payloads = netlink_dump.dump(socket.NETLINK_ROUTE, _GET_RULE, header, _NEW_RULE)
        except OSError as error:
            msg = f"cannot list the routing policy rules: {error.strerror}"
            raise KernelError(msg) from error
        for payload in payloads:
            fields = netlink_messages.payloads(payload, _HEADER_BYTES, len(payload))
            if _MASK in fields:
                found.append(
                    MarkRoute(family, _number(fields, _PRIORITY), _number(fields, _MARK), _number(fields, _MASK))
                )
    return tuple(found)


def _number(fields: dict[int, bytes], kind: int) -> int:
    return int.from_bytes(fields.get(kind, b""), sys.byteorder)
