"""Counts the clients in a dynamic set of session affinity, and finds the entries of one, through netlink.

    a list of elements: NFTA_LIST_ELEM { NFTA_SET_ELEM_KEY { NFTA_DATA_VALUE { client, ID } }, NFTA_SET_ELEM_TIMEOUT,
        NFTA_SET_ELEM_EXPIRATION, ... }, ...

The set may have millions of elements. None is kept, so memory does not depend on their number, and time is limited.
See docs/design/netlink-decoding.md.
"""

import struct
from collections import Counter
from collections.abc import Collection
from ipaddress import ip_address

from msgspec import Struct

from knft.kernel import netlink_messages
from knft.kernel import set_element_messages as messages
from knft.kernel.set_elements import dump_elements, get_elements
from knft.kernel.worker_messages import SetPart

_KEY, _TIMEOUT, _EXPIRATION = 1, 4, 5  # NFTA_SET_ELEM_...
_VALUE = 1  # NFTA_DATA_VALUE
_ID = struct.Struct("=I")  # a packet's priority, in the byte order of the machine
_MILLISECONDS = struct.Struct(">Q")
MAX_ENTRIES = 100_000
"""The kernel walks the set from its beginning for each buffer of a dump, so the time grows with the square of the
entries: 0.3 s of CPU time for 100 000, 34 s for a million."""


class _EnoughError(Exception):
    """Enough entries are counted."""


class ClientCounts(Struct, frozen=True):
    """The number of clients by endpoint ID, of all entries or of the first ones."""

    counts: dict[int, int]
    is_complete: bool


def count_clients(
    family: int, table: str, name: str, ids: Collection[int], max_entries: int = MAX_ENTRIES
) -> ClientCounts:
    """Count the entries with some endpoint IDs in a set: of all, or of the first ones, at least ``max_entries``.

    ``family`` is the number that nf_tables uses. The kernel can omit some entries and repeat others if packets add some
    meanwhile, or if it resizes the hash table, as it does shortly after many were added. Raises KernelError if the
    kernel refuses.
    """
    wanted = frozenset(ids)
    counts: Counter[int] = Counter()
    read = 0

    def receive(part: SetPart) -> None:
        nonlocal read
        for kind, data in messages.contents(part.buffer):
            if kind == messages.NEW_ELEMENTS:
                if read >= max_entries:
                    raise _EnoughError
                found = _ids(_elements(data))
                read += len(found)
                counts.update(number for number in found if number in wanted)

    try:
        dump_elements(family, table, [name], receive)
    except _EnoughError:
        return ClientCounts(dict(counts), is_complete=False)
    return ClientCounts(dict(counts), is_complete=True)


def client_seconds(family: int, table: str, name: str, ids: Collection[int], client: str) -> dict[int, int]:
    """Return the seconds until the entries of ``client``, an address, expire, by endpoint ID; raise KernelError."""
    address = ip_address(client).packed
    found: dict[int, int] = {}
    for buffer in get_elements(family, table, name, (address + _ID.pack(number) for number in ids)):
        for _, data in messages.contents(buffer):
            elements = _elements(data)
            for _, start, end in netlink_messages.attributes(elements):
                key, left = (_payload(elements, start, end, kind) for kind in (_KEY, _EXPIRATION))
                if key and left:
                    number = _ID.unpack_from(elements, key.stop - _ID.size)[0]
                    found[number] = _MILLISECONDS.unpack_from(elements, left.start)[0] // 1000
    return found


def _elements(data: bytes) -> bytes:
    found = messages.find_attribute(data, 0, len(data), messages.ELEMENTS)
    return data[found.start : found.stop]


def _ids(elements: bytes) -> list[int]:
    """Return the endpoint IDs of a list of elements: quickly, if all have the form of the first one."""
    first = next(netlink_messages.attributes(elements), None)
    if first is None:
        return []
    size = netlink_messages.padded(first[2])
    key, *times = (_payload(elements, first[1], first[2], kind) for kind in (_KEY, _TIMEOUT, _EXPIRATION))
    if key and messages.have_same_form(elements, size, (key, *times)):
        form = struct.Struct(f"={key.stop - _ID.size}xI{size - key.stop}x")
        return [number for (number,) in form.iter_unpack(elements)]
    keys = (_payload(elements, start, end, _KEY) for _, start, end in netlink_messages.attributes(elements))
    return [_ID.unpack_from(elements, found.stop - _ID.size)[0] for found in keys if found]


def _payload(data: bytes, start: int, end: int, kind: int) -> range:
    """Return where an element has an attribute; of its key, where its value is."""
    found = messages.find_attribute(data, start, end, kind)
    return messages.find_attribute(data, found.start, found.stop, _VALUE) if kind == _KEY and found else found
