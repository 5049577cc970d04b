"""Reads the counters of the elements of sets through netlink.

    a list of elements: NFTA_LIST_ELEM { NFTA_SET_ELEM_KEY { NFTA_DATA_VALUE { key } }, NFTA_SET_ELEM_EXPR {
        NFTA_EXPR_NAME "counter", NFTA_EXPR_DATA { NFTA_COUNTER_BYTES, NFTA_COUNTER_PACKETS } } }, ...

All elements of a set have the same size, so most lists are decoded without a loop over their attributes.
See docs/design/service-counters.md#reading.
"""

import struct
from collections.abc import Sequence

from knft.kernel import netlink_messages
from knft.kernel import set_element_messages as messages
from knft.kernel.set_elements import dump_elements
from knft.kernel.worker_messages import SetPart

_ELEMENTS = 3  # NFTA_SET_ELEM_LIST_ELEMENTS
_ELEMENT = 1  # NFTA_LIST_ELEM
_KEY, _EXPRESSION = 1, 7  # NFTA_SET_ELEM_...
_VALUE = 1  # NFTA_DATA_VALUE
_DATA = 2  # NFTA_EXPR_DATA
_PACKETS = 2  # NFTA_COUNTER_PACKETS
_HEAD = 4
_COUNT = struct.Struct(">Q")

Counts = dict[bytes, int]
"""The number of packets by the key, whose parts are padded to 4 bytes."""


def read_counters(family: int, table: str, names: Sequence[str]) -> dict[str, Counts]:
    """Return the counters of each set; ``family`` is the number that nf_tables uses.

    A transaction that changes a set meanwhile can make the kernel omit elements. Raises KernelError if the kernel
    refuses, for example because a set does not exist.
    """
    found: dict[str, Counts] = {name: {} for name in names}

    def receive(part: SetPart) -> None:
        for kind, data in messages.contents(part.buffer):
            if kind == messages.NEW_ELEMENTS:
                for number, start, end in netlink_messages.attributes(data):
                    if number == _ELEMENTS:
                        _add_list(data[start:end], found[part.name])

    dump_elements(family, table, names, receive)
    return found


def _add_list(elements: bytes, counts: Counts) -> None:
    """Add a list of elements: quickly, if all have the form of the first one."""
    first = next(netlink_messages.attributes(elements), None)
    if first is None:
        return
    size = netlink_messages.padded(first[2])
    key, packets = _ranges(elements, first[1], first[2])
    if key and packets and messages.have_same_form(elements, size, (key, _bytes_before(packets), packets)):
        between = packets.start - key.stop
        form = struct.Struct(f">{key.start}x{len(key)}s{between}xQ{size - packets.stop}x")
        counts.update(form.iter_unpack(elements))
        return
    for kind, start, end in netlink_messages.attributes(elements):
        key, packets = _ranges(elements, start, end)
        if kind == _ELEMENT and key and packets:
            counts[elements[key.start : key.stop]] = _COUNT.unpack_from(elements, packets.start)[0]


def _bytes_before(packets: range) -> range:
    """Return where an element has its number of bytes: before the head of its number of packets."""
    return range(packets.start - _HEAD - _COUNT.size, packets.start - _HEAD)


def _ranges(data: bytes, start: int, end: int) -> tuple[range, range]:
    """Return where an element has its key and its number of packets; empty ranges if it has none."""
    key = packets = range(0)
    for kind, first, last in netlink_messages.attributes(data, start, end):
        if kind == _KEY:
            key = messages.find_attribute(data, first, last, _VALUE)
        elif kind == _EXPRESSION:
            fields = messages.find_attribute(data, first, last, _DATA)
            packets = messages.find_attribute(data, fields.start, fields.stop, _PACKETS)
    return key, packets
