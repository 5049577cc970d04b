"""The answers from which ``knft explain`` explains: the objects that the running knft has, in pieces.

Objects have the form of the Kubernetes API, with the fields that knft reads (docs/design/control-socket.md#objects).
"""

from urllib.parse import quote

from msgspec import Struct

from knft.config import Config
from knft.control.messages import OBJECTS_PATH, PODS_PATH
from knft.families import Family
from knft.model.endpoint_pod import EndpointPod
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, Node, Service, ServiceCIDR

NODE_PATH = f"{OBJECTS_PATH}node"
FIRST = "0"
"""The position of the first piece."""


def services_path(position: str = FIRST) -> str:
    """Return the path of a piece of all Services; the answer is a ``ServicePiece``."""
    return f"{OBJECTS_PATH}services/{position}"


def slices_path(family: Family, position: str = FIRST) -> str:
    """Return the path of a piece of all EndpointSlices of a family; the answer is a ``SlicePiece``."""
    return f"{OBJECTS_PATH}endpointslices/{family.value}/{position}"


def service_path(service: NamespacedName, after: str = "") -> str:
    """Return the path of a Service's slices whose names sort after ``after``; the answer is ``ServiceSlices``."""
    return f"{OBJECTS_PATH}services/{service.namespace}/{service.name}/{after}"


def pods_path(service: NamespacedName, token: str = "") -> str:
    """Return the path of the pods of a Service's endpoints; the answer is a ``PodPage``, ``token`` that of the last."""
    return f"{PODS_PATH}{service.namespace}/{service.name}/{quote(token, safe='')}"


class FamilySync(Struct, frozen=True):
    """The syncs of a family: the state as in ``FamilyStatus``, and why the last sync failed, "" if it did not."""

    state: str
    error: str = ""


class NodeObjects(Struct, frozen=True):
    """The settings and objects that describe the node.

    ``local_addresses`` are those of the machine's interfaces. ``warning`` says that the node's name is probably wrong.
    ``unwatched_since`` has the resources that cannot be watched, and since when, in seconds since 1970.
    """

    pid: int
    config: Config
    node: Node | None
    service_cidrs: tuple[ServiceCIDR, ...]
    local_addresses: tuple[str, ...]
    warning: str
    families: dict[str, FamilySync]
    unwatched_since: dict[str, float] = {}


class ServicePiece(Struct, frozen=True):
    """Some of all Services; ``following`` is the position of the next piece, "" after the last one.

    If ``removals`` differs between two pieces, a Service was deleted, and another one may be missing in both.
    """

    services: tuple[Service, ...]
    following: str
    removals: int


class SlicePiece(Struct, frozen=True):
    """Some of all EndpointSlices of a family, as ``ServicePiece``."""

    slices: tuple[EndpointSlice, ...]
    following: str
    removals: int


class ServiceSlices(Struct, frozen=True):
    """EndpointSlices of one Service, sorted by name; ``after`` is the last name if there may be more, otherwise "".

    ``quarantined`` are its Service ports that the kernel refuses, and why.
    """

    slices: tuple[EndpointSlice, ...]
    after: str
    quarantined: dict[str, str]


class PodPage(Struct, frozen=True):
    """The pods of some endpoints of a Service, which knft has requested from the API server for this answer.

    ``token`` requests the next page, and is "" in the last one. ``problem`` is why pods are missing, or "".
    """

    pods: tuple[EndpointPod, ...] = ()
    token: str = ""
    problem: str = ""
