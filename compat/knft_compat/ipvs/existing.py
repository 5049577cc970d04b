"""What a node has already: virtual servers as ``ipvsadm`` prints them, and addresses as ``ip`` does."""

from msgspec import Struct

from knft.model.names import Protocol


class ExistingReal(Struct, frozen=True):
    """A real server: its weight, and how many connections it has, active and inactive."""

    address: str
    port: int
    weight: int = 1
    connections: int = 0


class ExistingServer(Struct, frozen=True):
    """A virtual server. ``persistent`` is its timeout in seconds, 0 without."""

    address: str
    port: int
    protocol: Protocol
    scheduler: str
    persistent: int = 0
    hashes_ports: bool = False
    reals: tuple[ExistingReal, ...] = ()


def read_servers(path: str, text: str) -> tuple[ExistingServer, ...]:
    """Return the virtual servers that ``ipvsadm`` printed; raise SourceError, naming ``path`` and the line."""
    raise NotImplementedError


def read_addresses(path: str, text: str) -> tuple[str, ...]:
    """Return the addresses of a file; raise SourceError, naming ``path`` and the line."""
    raise NotImplementedError
