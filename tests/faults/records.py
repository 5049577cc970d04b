"""The records of the client processes. Values only."""

from enum import StrEnum

from msgspec import Struct

ANSWERED_BY = "answered by"
"""The error of a UDP flow whose packets reach another pod than before."""


class Target(Struct, frozen=True):
    """A frontend of a Service, on which agnhost's ``netexec`` answers over TCP (HTTP) or UDP."""

    name: str
    address: str
    port: int
    protocol: str


class ClientPlan(Struct, frozen=True):
    """What a client process does: on each target it makes new connections, and keeps some open."""

    targets: tuple[Target, ...]
    kept: int = 2
    """The number of open connections for each target."""
    pause: float = 0.25
    """Seconds between two connections to a target."""
    kept_pause: float = 0.5
    """Seconds between two requests on an open connection."""


class Kind(StrEnum):
    """The kind of a connection."""

    NEW = "new"
    """It ends after one answer."""
    KEPT = "kept"
    """It stays open, and is used again and again."""


class Record(Struct, frozen=True, omit_defaults=True):
    """A connection that has ended; times are those of the wall clock, as in objects of the API server."""

    kind: Kind
    target: str
    begun: float
    ended: float
    server: str = ""
    """The name of the pod that has answered."""
    answers: int = 0
    retransmissions: int = 0
    """TCP segments that the client's kernel has sent again."""
    error: str = ""
    """Why the connection failed; empty if it ended because the client closed it."""
    asked: float = 0.0
    """When the last request was sent, or the connection begun for it."""
    answered: float = 0.0
    """When the last answer came; 0 if there was none."""
