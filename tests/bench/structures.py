"""``python -m tests.bench.structures`` prints how much memory knft's structures hold after a first sync.

The cluster's objects are decoded from the API server's JSON, as a watch does. An object that several structures share
counts for the first one in the table only. The sizes are those of Python's objects; an allocator needs a little more.
Garbage collection and the kernel are not involved, so that the figures are the same on each machine.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from knft.families import Family
from knft.model.objects import EndpointSlice, ObjectChange, Service
from knft.sync.assemble import rendering_daemon
from knft.sync.daemon import Daemon
from tests.bench.cluster import NODE_IP, Cluster, Shape
from tests.bench.served_cluster import service_json, slice_json
from tests.bench.timed_knft import CONFIG

_SHARED = (type, type(sys), type(lambda: None), type(Family.IPV4))
"""What belongs to no structure: classes, modules, functions and families."""


class StructureSize(Struct, frozen=True):
    """The objects of one structure, and their bytes."""

    name: str
    objects: int
    size: int


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.structures", description=__doc__)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--endpoints", type=int, default=10, help="of each Service")
    arguments = parser.parse_args()
    shape = Shape("structures", arguments.services, arguments.endpoints)
    print("| Structure | bytes for each Service | objects for each Service |\n| --- | --- | --- |")
    sizes = list(structure_sizes(shape))
    for each in (*sizes, StructureSize("all", sum(s.objects for s in sizes), sum(s.size for s in sizes))):
        print(f"| {each.name} | {each.size / shape.services:.0f} | {each.objects / shape.services:.1f} |")


def structure_sizes(shape: Shape) -> Iterator[StructureSize]:
    """Yield the sizes of the structures that hold a cluster after the first sync, in the order of the data's path."""
    services, slices, daemon = _synced(shape)
    state, (proxier, _) = daemon.states[Family.IPV4], daemon._proxiers
    programmed = proxier._writer.programmed
    seen: set[int] = set()
    for name, root in (
        ("Services as decoded", services),
        ("EndpointSlices as decoded", slices),
        ("change trackers and slices by Service", (state._service_tracker, state._endpoints_tracker._cache)),
        ("Service ports", state._services),
        ("endpoints of Service ports", state._endpoints),
        ("claims to frontends", state._frontends),
        ("programmed contents", (programmed._contents, programmed._members) if programmed is not None else ()),
    ):
        count, size = _measure(root, seen)
        yield StructureSize(name, count, size)


def _synced(shape: Shape) -> tuple[list[Service], list[EndpointSlice], Daemon]:
    decode_service, decode_slice = msgspec.json.Decoder(Service).decode, msgspec.json.Decoder(EndpointSlice).decode
    specs = list(Cluster(shape))
    services = [decode_service(msgspec.json.encode(service_json(spec))) for spec in specs]
    slices = [decode_slice(msgspec.json.encode(slice_json(spec))) for spec in specs]
    daemon, recorders = rendering_daemon(CONFIG)
    daemon.update_local_addresses(frozenset({NODE_IP}))
    daemon.handle(ObjectChange(None, item) for item in services)
    daemon.handle(ObjectChange(None, item) for item in slices)
    daemon.sync()
    for recorder in recorders.values():
        recorder.transactions.clear()
    return services, slices, daemon


def _measure(root: object, seen: set[int]) -> tuple[int, int]:
    """Return the number and the bytes of the objects that ``root`` reaches and that are not in ``seen``; add them."""
    count = size = 0
    waiting: list[Any] = [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or item is None or isinstance(item, (*_SHARED, bool)):
            continue
        seen.add(id(item))
        count, size = count + 1, size + sys.getsizeof(item)
        waiting.extend(_parts(item))
    return count, size


def _parts(item: Any) -> Iterator[Any]:
    match item:
        case Struct():
            yield from (getattr(item, name) for name in item.__struct_fields__)
        case dict():
            yield from item.keys()
            yield from item.values()
        case tuple() | list() | set() | frozenset():
            yield from item
        case str() | bytes() | int() | float():
            pass
        case _:
            yield from getattr(item, "__dict__", {}).values()


if __name__ == "__main__":
    main()
