"""Reads the objects of the running knft, piece by piece."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from knft.control.client import ask, decode
from knft.control.objects import (
    FIRST,
    NODE_PATH,
    NodeObjects,
    PodPage,
    ServicePiece,
    ServiceSlices,
    SlicePiece,
    pods_path,
    service_path,
    services_path,
    slices_path,
)
from knft.errors import ControlError
from knft.families import Family
from knft.model.endpoint_pod import EndpointPod
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Service

MAX_LISTS = 5
"""How often all pieces are read, if Services are deleted meanwhile."""
MAX_POD_PAGES = 100
"""At most so many pages of pods are read, each of 20 EndpointSlices; a page takes 5 s at most."""
_Piece = TypeVar("_Piece", ServicePiece, SlicePiece)
_Item = TypeVar("_Item")


class ObjectReader:
    """Asks the running knft. Each method raises ControlError if it does not answer."""

    def __init__(self, ask: Callable[[str], bytes] = ask) -> None:
        """``ask`` returns the answer to a request for a path."""
        self._ask = ask

    def node(self) -> NodeObjects:
        """Return the settings and objects that describe the node."""
        return decode(self._ask(NODE_PATH), NodeObjects)

    def services(self) -> tuple[Service, ...]:
        """Return all Services."""
        return self._read_all(services_path, ServicePiece, lambda piece: piece.services)

    def slices_with(self, family: Family, is_wanted: Callable[[EndpointSlice], bool]) -> tuple[EndpointSlice, ...]:
        """Return the EndpointSlices of a family that are wanted; the others are not kept."""

        def path(position: str) -> str:
            return slices_path(family, position)

        return self._read_all(path, SlicePiece, lambda piece: filter(is_wanted, piece.slices))

    def _read_all(
        self, path: Callable[[str], str], kind: type[_Piece], items_of: Callable[[_Piece], Iterable[_Item]]
    ) -> tuple[_Item, ...]:
        """Return what all pieces contain; read them again if Services were deleted, and some may be missing."""
        for _ in range(MAX_LISTS):
            position, removals = FIRST, set[int]()
            found: list[_Item] = []
            while position:
                piece = decode(self._ask(path(position)), kind)
                found += items_of(piece)
                removals.add(piece.removals)
                position = piece.following
            if len(removals) == 1:
                return tuple(found)
        msg = "the objects of the running knft cannot be read: Services were deleted during each reading; retry"
        raise ControlError(msg)

    def slices(self, service: NamespacedName) -> ServiceSlices:
        """Return all EndpointSlices of a Service, and its Service ports that are quarantined."""
        found: list[EndpointSlice] = []
        after = ""
        while True:
            piece = decode(self._ask(service_path(service, after)), ServiceSlices)
            found += piece.slices
            after = piece.after
            if not after:
                return ServiceSlices(tuple(found), "", piece.quarantined)

    def pods(self, service: NamespacedName) -> tuple[EndpointPod, ...]:
        """Return the pods of a Service's endpoints; the running knft requests them from the API server.

        Nothing is returned if its objects come from manifests. Raises ControlError if the API server does not answer.
        """
        found: list[EndpointPod] = []
        token = ""
        for _ in range(MAX_POD_PAGES):
            page = decode(self._ask(pods_path(service, token)), PodPage)
            if page.problem:
                raise ControlError(page.problem)
            found += page.pods
            token = page.token
            if not token:
                return tuple(found)
        msg = f"the API server's list of EndpointSlices has more than {MAX_POD_PAGES} pages"
        raise ControlError(msg)
