"""Answers requests for objects, from which ``knft explain`` explains; loaded at the first request.

The size of an answer is bounded, and so a request takes a few milliseconds in a cluster of any size. A request waits
for no lock of a sync, because lists are copied in one step of the interpreter (docs/design/control-socket.md#objects).
"""

import os
import re
from collections.abc import Iterable
from http import HTTPStatus

import msgspec
from msgspec import Raw

from knft.config import Config
from knft.control.messages import OBJECTS_PATH
from knft.control.objects import FamilySync, NodeObjects
from knft.decide.node_problems import missing_node_problem
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Service
from knft.serve.http_message import JSON, Response, status_response
from knft.serve.status import StatusSources, family_state
from knft.sync.daemon import Daemon
from knft.sync.state import ServiceState

PIECE_BYTES = 1 << 19
"""A piece ends with the object with which it has this size."""
PIECE_SERVICES = 5_000
"""How many Services are looked at for a piece: those without slices add nothing to its size."""
_POSITION = re.compile("[0-9]{1,9}")
_encode = msgspec.json.Encoder().encode


def read_objects(path: str, config: Config, sources: StatusSources) -> Response:
    """Return the answer to a request for objects; from any thread."""
    daemon, states = sources.daemon, {family.value: state for family, state in sources.daemon.states.items()}
    match path.removeprefix(OBJECTS_PATH).split("/"):
        case ["node"]:
            return _response(_node(config, sources))
        case ["services", position] if _POSITION.fullmatch(position):
            return _response(_services(daemon, int(position)))
        case ["services", namespace, name, after]:
            return _response(_service(sources, NamespacedName(namespace, name), after))
        case ["endpointslices", family, position, *after] if family in states and _POSITION.fullmatch(position):
            return _response(_slices(states[family], int(position), "".join(after)))
        case _:
            return status_response(HTTPStatus.NOT_FOUND)


def _response(answer: object) -> Response:
    return Response(HTTPStatus.OK, _encode(answer), JSON)


def _node(config: Config, sources: StatusSources) -> NodeObjects:
    inputs, states = sources.daemon.node_inputs(), sources.daemon.states
    errors, now = sources.last_syncs.errors, sources.clock().unix_seconds
    return NodeObjects(
        pid=os.getpid(),
        config=config,
        node=inputs.node,
        service_cidrs=inputs.service_cidrs,
        local_addresses=tuple(sorted(inputs.local_addresses or ())),
        warning="" if inputs.node is not None else missing_node_problem(config.node_name, inputs.other_nodes),
        families={family.value: FamilySync(family_state(sources, family), errors.get(family, "")) for family in states},
        unwatched_since={name: now - seconds for name, seconds in sources.source().unwatched_seconds.items()},
    )


class _Piece:
    """Encodes objects one by one until the piece has its size."""

    def __init__(self) -> None:
        self.encoded: list[Raw] = []
        self._size = 0

    def add(self, item: Service | EndpointSlice) -> None:
        """Add one object."""
        encoded = _encode(item)
        self.encoded.append(Raw(encoded))
        self._size += len(encoded)

    @property
    def is_full(self) -> bool:
        """Whether the piece has its size."""
        return self._size >= PIECE_BYTES


def _services(daemon: Daemon, position: int) -> dict[str, object]:
    """Return a ``ServicePiece``."""
    removals, services, piece = daemon.service_removals(), daemon.services(), _Piece()
    end = min(len(services), position)
    while end < len(services) and not piece.is_full:
        piece.add(services[end])
        end += 1
    following = str(end) if end < len(services) else ""
    return {"services": piece.encoded, "following": following, "removals": removals}


def _slices(state: ServiceState, position: int, after: str) -> dict[str, object]:
    """Return a ``SlicePiece``: slices of Services from ``position`` on, of the first one those after ``after``."""
    removals, names, piece = state.slice_removals(), state.services_with_slices(), _Piece()
    end = min(len(names), position + PIECE_SERVICES)
    following = str(end) if end < len(names) else ""
    for number in range(position, end):
        for item in _sorted_after(state.slices(names[number]), after):
            piece.add(item)
            if piece.is_full:
                following = f"{number}/{item.metadata.name}"
                return {"slices": piece.encoded, "following": following, "removals": removals}
        after = ""
    return {"slices": piece.encoded, "following": following, "removals": removals}


def _service(sources: StatusSources, service: NamespacedName, after: str) -> dict[str, object]:
    """Return ``ServiceSlices``."""
    slices = [item for state in sources.daemon.states.values() for item in state.slices(service)]
    piece, last = _Piece(), ""
    for item in _sorted_after(slices, after):
        piece.add(item)
        if piece.is_full:
            last = item.metadata.name
            break
    refused = (sync.quarantined.items() for sync in tuple(sources.last_syncs.syncs.values()))
    quarantined = {str(name): reason for items in refused for name, reason in items if name.service == service}
    return {"slices": piece.encoded, "after": last, "quarantined": quarantined}


def _sorted_after(slices: Iterable[EndpointSlice], after: str) -> list[EndpointSlice]:
    """Return the slices whose names sort after ``after``, in this order."""
    return sorted((item for item in slices if item.metadata.name > after), key=lambda item: item.metadata.name)
