"""Reads the existing virtual servers from the output of ``ipvsadm``, and existing addresses from that of ``ip``.

A line that the tool does not print is an error; no line is ignored silently.
"""

import re
from collections.abc import Callable, Iterator
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from knft.errors import SourceError
from knft.leftovers.names import DEVICE
from knft.model import addresses
from knft.model.endpoint import endpoint_key
from knft.protocols import Protocol


class ExistingRealServer(Struct, frozen=True):
    """A real server: its weight, and the number of its active and inactive connections."""

    address: str
    port: int
    weight: int = 1
    connections: int = 0


class ExistingServer(Struct, frozen=True):
    """A virtual server; ``persistent`` is its persistence timeout in seconds, 0 for none.

    ``has_other_flags`` tells whether it has flags that kube-proxy never sets.
    """

    address: str
    port: int
    protocol: Protocol
    scheduler: str
    persistent: int = 0
    hashes_ports: bool = False
    has_other_flags: bool = False
    real_servers: tuple[ExistingRealServer, ...] = ()


class ParsedServers(Struct, frozen=True):
    """The virtual servers of a file, and warnings about reading it."""

    servers: tuple[ExistingServer, ...]
    warnings: tuple[str, ...] = ()


def read_servers(path: str, text: str) -> ParsedServers:
    """Return the virtual servers that ``ipvsadm`` printed; raise SourceError with ``path`` and the line."""
    parser = _ServerParser()
    _read_lines(path, text, parser.parse_line)
    count = parser.without_connection_counts
    warning = (
        f"{path}: {count} real servers have no connection counts; assuming 0 connections; append the output of "
        "ipvsadm -Ln to the file"
    )
    return ParsedServers(parser.servers(), (warning,) if count else ())


def read_addresses(path: str, text: str) -> tuple[str, ...]:
    """Return the addresses of a file; raise SourceError with ``path`` and the line."""
    parser = _AddressParser()
    _read_lines(path, text, parser.parse_line)
    return tuple(dict.fromkeys(parser.addresses))


class _UnexpectedLineError(Exception):
    """The tool does not print such a line; the text tells why."""


def _read_lines(path: str, text: str, read: Callable[[str], None]) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            read(" ".join(line.split()))
        except _UnexpectedLineError as error:
            msg = f"{path}: line {number}: {error}"
            raise SourceError(msg) from error


_HEADERS = ("IP Virtual Server version ", "Prot LocalAddress:Port Scheduler Flags", "-> RemoteAddress:Port Forward ")
_SERVICE = r"(?P<protocol>-t|-u|--sctp-service) (?P<socket>\S+)"
_FLAGS = r"(?P<flags>(?:[ms]h-(?:port|fallback)|flag-[123])(?:,[^ )]+)*)"
_SAVED_SERVER = re.compile(
    rf"-A {_SERVICE} -s (?P<scheduler>\S+)"
    rf"(?: -p (?P<persistent>[0-9]{{1,9}})| -M \S+| --pe (?P<engine>\S+)| -b {_FLAGS}"
    r"| (?P<packet>-o)| (?P<nameless>-b)(?= -|$))*"
)
_LISTED_SERVER = re.compile(
    r"(?P<protocol>TCP|UDP|SCTP) (?P<socket>\S+) (?P<scheduler>\S+)"
    rf"(?: persistent (?P<persistent>[0-9]{{1,9}})| mask \S+| pe (?P<engine>\S+)"
    rf"| \({_FLAGS}\)| (?P<packet>ops)| (?P<nameless>\(\)))*"
)
_SAVED_REAL_SERVER = re.compile(
    rf"-a {_SERVICE} -r (?P<real>\S+) -[gim](?: -w (?P<weight>[0-9]{{1,9}})| -[xy] [0-9]+| --tun-\S+(?: \w+)?)*"
)
_LISTED_REAL_SERVER = re.compile(
    r"-> (?P<real>\S+) (?:Masq|Route|Tunnel|Local) "
    r"(?P<weight>[0-9]{1,9}) (?P<active>[0-9]{1,9}) (?P<inactive>[0-9]{1,9})"
)
_PROTOCOLS = {"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP"}
_HASHES_PORTS = frozenset({"mh-port", "flag-2"})
_LAST_PORT = 65535

_ServerKey = tuple[Protocol, str]
"""A virtual server: its protocol, and its address and port."""


class _ServerParser:
    """The servers parsed so far; a server that both ``ipvsadm`` commands print is one server."""

    def __init__(self) -> None:
        self._servers: dict[_ServerKey, ExistingServer] = {}
        self._real_servers: dict[_ServerKey, dict[str, ExistingRealServer]] = {}
        self._with_connection_counts: set[tuple[_ServerKey, str]] = set()
        self._current: _ServerKey | None = None

    def parse_line(self, line: str) -> None:
        """Parse a line, or raise _UnexpectedLineError."""
        if not line or line.startswith(_HEADERS):
            return
        if line.startswith("FWM ") or re.match(r"-[Aa] -f ", line):
            msg = "virtual server with a firewall mark, which kube-proxy never creates; remove it from the file"
            raise _UnexpectedLineError(msg)
        for pattern, handle in self._line_handlers():
            if found := pattern.fullmatch(line):
                handle(found)
                return
        msg = f"not printed by ipvsadm -Sn or ipvsadm -Ln: {line[:60]!r}"
        raise _UnexpectedLineError(msg)

    @property
    def without_connection_counts(self) -> int:
        """Number of real servers that were printed without their connections."""
        return sum(
            (key, place) not in self._with_connection_counts
            for key, reals in self._real_servers.items()
            for place in reals
        )

    def servers(self) -> tuple[ExistingServer, ...]:
        """Return all servers."""
        return tuple(
            replace(server, real_servers=tuple(self._real_servers[key].values()))
            for key, server in self._servers.items()
        )

    def _line_handlers(self) -> Iterator[tuple[re.Pattern[str], Callable[[re.Match[str]], None]]]:
        yield _SAVED_SERVER, self._add_server
        yield _LISTED_SERVER, self._add_server
        yield _SAVED_REAL_SERVER, self._add_saved_real_server
        yield _LISTED_REAL_SERVER, self._add_listed_real_server

    def _add_server(self, found: re.Match[str]) -> None:
        key, (address, port) = _server_key(found), _parse_socket_address(found["socket"])
        flags = set((found["flags"] or "").split(",")) - {""}
        self._current = key
        self._real_servers.setdefault(key, {})
        self._servers[key] = ExistingServer(
            address,
            port,
            key[0],
            found["scheduler"],
            int(found["persistent"] or 0),
            bool(flags & _HASHES_PORTS),
            bool(found["engine"] or found["packet"] or found["nameless"] or flags - _HASHES_PORTS),
        )

    def _add_saved_real_server(self, found: re.Match[str]) -> None:
        key, (address, port) = _server_key(found), _parse_socket_address(found["real"])
        if key not in self._servers:
            msg = f"the virtual server {found['socket']} must precede its real server"
            raise _UnexpectedLineError(msg)
        # An earlier listing has the connection counts, which this line lacks.
        self._real_servers[key].setdefault(
            endpoint_key(address, port), ExistingRealServer(address, port, int(found["weight"] or 1))
        )

    def _add_listed_real_server(self, found: re.Match[str]) -> None:
        if self._current is None:
            msg = "real server without a preceding virtual server"
            raise _UnexpectedLineError(msg)
        address, port = _parse_socket_address(found["real"])
        key, connections = endpoint_key(address, port), int(found["active"]) + int(found["inactive"])
        self._real_servers[self._current][key] = ExistingRealServer(address, port, int(found["weight"]), connections)
        self._with_connection_counts.add((self._current, key))


def _server_key(found: re.Match[str]) -> _ServerKey:
    protocol = _PROTOCOLS.get(found["protocol"], found["protocol"])
    return cast(Protocol, protocol), endpoint_key(*_parse_socket_address(found["socket"]))


def _parse_socket_address(text: str) -> tuple[str, int]:
    """Return the address and the port of ``10.96.0.1:80`` or ``[fd00::1]:80``."""
    address, _, port = text.rpartition(":")
    in_brackets = address.startswith("[") and address.endswith("]")
    parsed = addresses.parse_address(address[1:-1] if in_brackets else address)
    if (
        parsed is None
        or not re.fullmatch(r"[0-9]{1,5}", port)
        or int(port) > _LAST_PORT
        or (":" in address) != in_brackets
    ):
        msg = f"{text!r} is not a numeric address and port, as ipvsadm prints with -n"
        raise _UnexpectedLineError(msg)
    return parsed[1], int(port)


_LINK = re.compile(r"[0-9]+: (?P<device>[^ :@]+)(?:@\S+)?: <.*")
_DETAIL = re.compile(r"(?:link/|valid_lft |altname ).*")
_ASSIGNED = re.compile(r"(?:[0-9]+: (?P<device>\S+) )?inet6? (?P<address>\S+) .*")


class _AddressParser:
    """The addresses of kube-ipvs0 parsed so far; addresses of other devices are ignored."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self._device: Literal["ours", "other"] = "ours"

    def parse_line(self, line: str) -> None:
        """Parse a line, or raise _UnexpectedLineError."""
        if link := _LINK.fullmatch(line):
            self._device = "ours" if link["device"] == DEVICE else "other"
        elif assigned := _ASSIGNED.fullmatch(line):
            ours = self._device == "ours" if assigned["device"] is None else assigned["device"] == DEVICE
            self.addresses += [_parse_address(assigned["address"])] if ours else []
        elif line and not _DETAIL.fullmatch(line):
            self.addresses.append(_parse_address(line))


def _parse_address(text: str) -> str:
    """Return the address of ``ADDRESS`` or ``ADDRESS/LENGTH``."""
    parsed = addresses.parse_address(text.partition("/")[0])
    if parsed is None or ("/" in text and addresses.parse_network(text) is None):
        msg = f"{text[:60]!r} is neither an address nor a line of ip address show"
        raise _UnexpectedLineError(msg)
    return parsed[1]
