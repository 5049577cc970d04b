"""The outcomes of a connection attempt, as values."""

from dataclasses import dataclass, field
from typing import Literal

Protocol = Literal["tcp", "udp"]
AnyProtocol = Protocol | Literal["sctp"]
"""Only ``dial`` and ``Responders.serve`` know SCTP, with packets that ``sctp`` builds."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A server answered; these are the addresses that it saw."""

    server: str
    """The name of the answering host."""
    address: str
    """The server's address of the connection; ``port`` is its port."""
    port: int
    source: str
    """The client's address as the server saw it, after masquerading; ``source_port`` is the port."""
    source_port: int
    elapsed: float = field(default=0.0, compare=False)
    """Seconds from the connection attempt to the answer."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The connection was refused at once.

    ``icmp`` is an ICMP port unreachable message. The proxy's ``reject`` and hosts with a closed UDP port send it;
    ``sender`` tells which. ``reset`` is a TCP reset, which a host with a closed TCP port sends.
    """

    kind: Literal["icmp", "reset"]
    sender: str | None = field(default=None, compare=False)
    """The sender of the ICMP message; None for a reset."""


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing was received in time: the packet or its answer was dropped."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The address is unreachable: no route, no neighbor, or prohibited."""

    errno: int


Outcome = Answered | Rejected | Silent | Unreachable
