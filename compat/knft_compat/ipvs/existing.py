"""What a node has already: virtual servers as ``ipvsadm`` prints them, and addresses as ``ip`` does.

Text comes in, values go out. A line that neither tool prints ends the reading: nothing is left out in silence.
"""

import re
from collections.abc import Callable, Iterator
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from knft.errors import SourceError
from knft.model import addresses
from knft.model.endpoint import endpoint_key
from knft.model.names import Protocol
from knft.takeover.names import DEVICE


class ExistingReal(Struct, frozen=True):
    """A real server: its weight, and how many connections it has, active and inactive."""

    address: str
    port: int
    weight: int = 1
    connections: int = 0


class ExistingServer(Struct, frozen=True):
    """A virtual server. ``persistent`` is its timeout in seconds, 0 without.

    ``has_other_flags`` tells of some that kube-proxy never sets.
    """

    address: str
    port: int
    protocol: Protocol
    scheduler: str
    persistent: int = 0
    hashes_ports: bool = False
    has_other_flags: bool = False
    reals: tuple[ExistingReal, ...] = ()


class FoundServers(Struct, frozen=True):
    """The virtual servers of a file, and what there is to say about the reading, in sentences."""

    servers: tuple[ExistingServer, ...]
    remarks: tuple[str, ...] = ()


def read_servers(path: str, text: str) -> FoundServers:
    """Return the virtual servers that ``ipvsadm`` printed; raise SourceError, naming ``path`` and the line."""
    reading = _Servers()
    _read_lines(path, text, reading.read)
    remark = f"{path}: {reading.uncounted} of the real servers have no connection counts, which ipvsadm -Ln prints"
    remarks = (f"{remark}: they count as having no connections",) if reading.uncounted else ()
    return FoundServers(reading.found(), remarks)


def read_addresses(path: str, text: str) -> tuple[str, ...]:
    """Return the addresses of a file; raise SourceError, naming ``path`` and the line."""
    reading = _Addresses()
    _read_lines(path, text, reading.read)
    return tuple(dict.fromkeys(reading.found))


class _NotThisError(Exception):
    """The line is none that the tool prints; the text says why."""


def _read_lines(path: str, text: str, read: Callable[[str], None]) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            read(" ".join(line.split()))
        except _NotThisError as error:
            msg = f"{path}: line {number}: {error}"
            raise SourceError(msg) from error


_HEADERS = ("IP Virtual Server version ", "Prot LocalAddress:Port Scheduler Flags", "-> RemoteAddress:Port Forward ")
_SERVICE = r"(?P<protocol>-t|-u|--sctp-service) (?P<place>\S+)"
_FLAGS = r"(?P<flags>(?:[ms]h-(?:port|fallback)|flag-[123])(?:,[^ )]+)*)"
_SAVED_SERVER = re.compile(
    rf"-A {_SERVICE} -s (?P<scheduler>\S+)"
    rf"(?: -p (?P<persistent>\d{{1,9}})| -M \S+| --pe (?P<engine>\S+)| -b {_FLAGS}"
    r"| (?P<packet>-o)| (?P<nameless>-b)(?= -|$))*"
)
_LISTED_SERVER = re.compile(
    r"(?P<protocol>TCP|UDP|SCTP) (?P<place>\S+) (?P<scheduler>\S+)"
    rf"(?: persistent (?P<persistent>\d{{1,9}})| mask \S+| pe (?P<engine>\S+)"
    rf"| \({_FLAGS}\)| (?P<packet>ops)| (?P<nameless>\(\)))*"
)
_SAVED_REAL = re.compile(
    rf"-a {_SERVICE} -r (?P<real>\S+) -[gim](?: -w (?P<weight>\d{{1,9}})| -[xy] \d+| --tun-\S+(?: \w+)?)*"
)
_LISTED_REAL = re.compile(
    r"-> (?P<real>\S+) (?:Masq|Route|Tunnel|Local) "
    r"(?P<weight>\d{1,9}) (?P<active>\d{1,9}) (?P<inactive>\d{1,9})"
)
_PROTOCOLS = {"-t": "TCP", "-u": "UDP", "--sctp-service": "SCTP"}
_HASHES_PORTS = frozenset({"mh-port", "flag-2"})
_LAST_PORT = 65535

_Key = tuple[Protocol, str]
"""A virtual server: its protocol, and its address and port."""


class _Servers:
    """What has been read so far. A server that both commands have printed is one server."""

    def __init__(self) -> None:
        self._servers: dict[_Key, ExistingServer] = {}
        self._reals: dict[_Key, dict[str, ExistingReal]] = {}
        self._counted: set[tuple[_Key, str]] = set()
        self._current: _Key | None = None

    def read(self, line: str) -> None:
        """Take in a line, or raise _NotThisError."""
        if not line or line.startswith(_HEADERS):
            return
        if line.startswith("FWM ") or re.match(r"-[Aa] -f ", line):
            msg = "a virtual server by firewall mark, which kube-proxy never makes; take it out of the file"
            raise _NotThisError(msg)
        for pattern, take in self._readers():
            if found := pattern.fullmatch(line):
                take(found)
                return
        msg = f"neither ipvsadm -Sn nor ipvsadm -Ln prints {line[:60]!r}"
        raise _NotThisError(msg)

    @property
    def uncounted(self) -> int:
        """How many real servers were only printed without their connections."""
        return sum((key, place) not in self._counted for key, reals in self._reals.items() for place in reals)

    def found(self) -> tuple[ExistingServer, ...]:
        """Return all servers."""
        return tuple(replace(server, reals=tuple(self._reals[key].values())) for key, server in self._servers.items())

    def _readers(self) -> Iterator[tuple[re.Pattern[str], Callable[[re.Match[str]], None]]]:
        yield _SAVED_SERVER, self._take_server
        yield _LISTED_SERVER, self._take_server
        yield _SAVED_REAL, self._take_saved_real
        yield _LISTED_REAL, self._take_listed_real

    def _take_server(self, found: re.Match[str]) -> None:
        key, (address, port) = _key(found), _place(found["place"])
        flags = set((found["flags"] or "").split(",")) - {""}
        self._current = key
        self._reals.setdefault(key, {})
        self._servers[key] = ExistingServer(
            address,
            port,
            key[0],
            found["scheduler"],
            int(found["persistent"] or 0),
            bool(flags & _HASHES_PORTS),
            bool(found["engine"] or found["packet"] or found["nameless"] or flags - _HASHES_PORTS),
        )

    def _take_saved_real(self, found: re.Match[str]) -> None:
        key, (address, port) = _key(found), _place(found["real"])
        if key not in self._servers:
            msg = f"the virtual server {found['place']} of this real server does not stand before it"
            raise _NotThisError(msg)
        # A listing that came before it knows more.
        self._reals[key].setdefault(endpoint_key(address, port), ExistingReal(address, port, int(found["weight"] or 1)))

    def _take_listed_real(self, found: re.Match[str]) -> None:
        if self._current is None:
            msg = "a real server before any virtual server"
            raise _NotThisError(msg)
        address, port = _place(found["real"])
        place, connections = endpoint_key(address, port), int(found["active"]) + int(found["inactive"])
        self._reals[self._current][place] = ExistingReal(address, port, int(found["weight"]), connections)
        self._counted.add((self._current, place))


def _key(found: re.Match[str]) -> _Key:
    protocol = _PROTOCOLS.get(found["protocol"], found["protocol"])
    return cast(Protocol, protocol), endpoint_key(*_place(found["place"]))


def _place(text: str) -> tuple[str, int]:
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
        msg = f"{text!r} is not an address and a port in figures, as ipvsadm prints them with -n"
        raise _NotThisError(msg)
    return parsed[1], int(port)


_LINK = re.compile(r"\d+: (?P<device>[^ :@]+)(?:@\S+)?: <.*")
_DETAIL = re.compile(r"(?:link/|valid_lft |altname ).*")
_ASSIGNED = re.compile(r"(?:\d+: (?P<device>\S+) )?inet6? (?P<address>\S+) .*")


class _Addresses:
    """The addresses read so far; those of other devices, which ``ip`` may have printed too, are none."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._device: Literal["ours", "other"] = "ours"

    def read(self, line: str) -> None:
        """Take in a line, or raise _NotThisError."""
        if link := _LINK.fullmatch(line):
            self._device = "ours" if link["device"] == DEVICE else "other"
        elif assigned := _ASSIGNED.fullmatch(line):
            ours = self._device == "ours" if assigned["device"] is None else assigned["device"] == DEVICE
            self.found += [_address(assigned["address"])] if ours else []
        elif line and not _DETAIL.fullmatch(line):
            self.found.append(_address(line))


def _address(text: str) -> str:
    """Return an address, whose length may stand behind it."""
    parsed = addresses.parse_address(text.partition("/")[0])
    if parsed is None or ("/" in text and addresses.parse_network(text) is None):
        msg = f"{text[:60]!r} is neither an address nor a line that ip address show prints"
        raise _NotThisError(msg)
    return parsed[1]
