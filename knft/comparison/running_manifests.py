"""The objects of the running knft as the manifests before a change, for ``knft lint``."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec
from msgspec import Struct

from knft.comparison.running import node_object, running_warnings
from knft.config import Config
from knft.control.object_reader import ObjectReader
from knft.families import Family
from knft.model import described
from knft.model.objects import EndpointSlice, KubeObject, Node, ObjectMeta, Service

_Described = TypeVar("_Described", described.EndpointSlice, described.Service)


class RunningManifests(Struct, frozen=True):
    """The objects and settings of the running knft; ``notes`` tell what they lack."""

    objects: tuple[KubeObject, ...]
    config: Config
    local_addresses: tuple[str, ...]
    notes: tuple[str, ...]


def read_running_manifests(reader: ObjectReader) -> RunningManifests:
    """Read all objects; raise ControlError if the running knft does not answer."""
    slices = [item for family in Family for item in reader.slices_with(family, lambda _: True)]
    services = reader.services()
    node = reader.node()
    note = (
        f"the objects before the change are those of the running knft (pid {node.pid}): packets are compared on its "
        "node only, and findings about fields that knft does not keep count as new"
    )
    objects: tuple[KubeObject, ...] = (
        *node_object(node),
        *(_other_nodes(node.node, slices) if node.node is not None else ()),
        *node.service_cidrs,
        *(_described(item, described.Service) for item in services),
        *(_described(item, described.EndpointSlice) for item in slices),
    )
    return RunningManifests(objects, node.config, node.local_addresses, (note, *running_warnings(node)))


def _other_nodes(own: Node, slices: Iterable[EndpointSlice]) -> Iterator[Node]:
    """Yield the nodes of endpoints, of which the daemon knows the names only; without them they count as misspelt."""
    names = {endpoint.node_name for item in slices for endpoint in item.endpoints or ()}
    for name in sorted(filter(None, names - {own.metadata.name})):
        yield Node(ObjectMeta(name))


def _described(item: Service | EndpointSlice, kind: type[_Described]) -> _Described:
    """Return an object as the type of ``knft lint``, without the fields that the daemon does not keep."""
    return msgspec.convert(msgspec.to_builtins(item), kind)
