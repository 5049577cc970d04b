"""What came of dialling: values, which know nothing of sockets."""

from dataclasses import dataclass, field
from typing import Literal

Protocol = Literal["tcp", "udp"]
AnyProtocol = Protocol | Literal["sctp"]
"""SCTP is made by hand (``sctp``), and only by ``dial`` and ``Responders.serve``."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A server answered; this is how it saw the connection."""

    server: str
    """The name of the answering host."""
    address: str
    """The address, and below the port, at which the server was reached."""
    port: int
    source: str
    """The client's address and port as the server saw them, that is after any masquerading."""
    source_port: int
    elapsed: float = field(default=0.0, compare=False)
    """Seconds from dialling to the answer."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Somebody said at once that nobody listens.

    ``icmp`` is a port-unreachable message, as a proxy's ``reject`` makes it (and as a host makes it for a closed UDP
    port: look at ``sender``); ``reset`` is a TCP reset, as a host makes it for a closed TCP port.
    """

    how: Literal["icmp", "reset"]
    sender: str | None = field(default=None, compare=False)
    """Who sent the ICMP message; unknown for a reset."""


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing came back in time: the packet was dropped, or its answer was."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """There is no way to that address: no route, no neighbour, or forbidden."""

    errno: int


Outcome = Answered | Rejected | Silent | Unreachable
