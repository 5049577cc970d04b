"""Parses the output of ``ipvsadm -Sn``, which is also the input of ``ipvsadm -R``.

Virtual servers that ``VirtualServer`` cannot represent raise a CaptureError: those for a firewall mark or for every
port, and real servers that are reached by direct routing or a tunnel.
"""

import ipaddress
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import Struct

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.errors import abbreviated
from knft.interpret.rules import VirtualServer
from knft.protocols import SCTP, TCP, UDP

_PROTOCOLS = {"-t": TCP, "-u": UDP, "--sctp-service": SCTP}
_LONG = {
    "--add-service": "-A",
    "--edit-service": "-E",
    "--delete-service": "-D",
    "--add-server": "-a",
    "--edit-server": "-e",
    "--delete-server": "-d",
    "--clear": "-C",
    "--tcp-service": "-t",
    "--udp-service": "-u",
    "--fwmark-service": "-f",
    "--scheduler": "-s",
    "--persistent": "-p",
    "--real-server": "-r",
    "--weight": "-w",
    "--masquerading": "-m",
    "--gatewaying": "-g",
    "--ipip": "-i",
}
_WITHOUT_VALUE = frozenset({"-m", "-g", "-i", "-6", "-o", "-O", "--ops", "--tun-nocsum", "--tun-csum", "--tun-remcsum"})
_DEFAULT_SECONDS, _DEFAULT_SCHEDULER = 300, "wlc"
_LAST_PORT, _LAST_NUMBER = 0xFFFF, (1 << 32) - 1
_ADVICE = "print them as numbers, with `ipvsadm -Sn`"


class _Key(NamedTuple):
    """The key of a virtual server."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    protocol: int
    port: int


class _PartialServer(Struct):
    """A virtual server whose real servers are still being parsed."""

    scheduler: str
    seconds: int | None
    weights: dict[tuple[int, int], int]
    """The weights of the real servers, by address and port."""
    line: int


def read(text: str, version: IpVersion) -> tuple[VirtualServer, ...]:
    """Return the virtual servers of one family, in order; raise CaptureError."""
    parser = _Parser()
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            try:
                parser.parse_line(words, number)
            except CaptureError as error:
                msg = f"line {number}: {error}"
                raise CaptureError(msg) from error
    return tuple(_of_version(parser.servers, version))


def _of_version(parsed: dict[_Key, _PartialServer], version: IpVersion) -> Iterator[VirtualServer]:
    for key, server in parsed.items():
        if key.address.version == version:
            real_servers = tuple((address, port, weight) for (address, port), weight in server.weights.items())
            yield VirtualServer(
                int(key.address), key.protocol, key.port, server.scheduler, real_servers, server.seconds, server.line
            )


class _Parser:
    """Applies the parsed commands and keeps the resulting virtual servers."""

    def __init__(self) -> None:
        self.servers: dict[_Key, _PartialServer] = {}
        self._line = 0
        self._commands: dict[str, Callable[[dict[str, str]], None]] = {
            "-A": self._add,
            "-E": self._add,
            "-D": self._delete,
            "-a": self._add_real_server,
            "-e": self._add_real_server,
            "-d": self._delete_real_server,
            "-C": self._clear,
        }

    def parse_line(self, words: list[str], number: int) -> None:
        """Apply the command of a line."""
        self._line = number
        command = self._commands.get(_LONG.get(words[0], words[0]))
        if command is None:
            msg = f"{abbreviated(' '.join(words))} is not output of `ipvsadm -Sn`"
            raise CaptureError(msg)
        command(_options(words[1:]))

    def _add(self, options: dict[str, str]) -> None:
        key = _key(options)
        seconds = None
        if "-p" in options:
            seconds = _number(options["-p"], _LAST_NUMBER) if options["-p"] else _DEFAULT_SECONDS
        existing = self.servers.get(key)
        weights = existing.weights if existing is not None else {}
        self.servers[key] = _PartialServer(options.get("-s", _DEFAULT_SCHEDULER), seconds, weights, self._line)

    def _delete(self, options: dict[str, str]) -> None:
        self._existing(options)
        del self.servers[_key(options)]

    def _add_real_server(self, options: dict[str, str]) -> None:
        server = self._existing(options)
        if "-m" not in options:
            msg = "real servers with direct routing or a tunnel are not supported, only with masquerading (-m)"
            raise CaptureError(msg)
        server.weights[_real_server(options)] = _number(options.get("-w", "1"), _LAST_NUMBER)

    def _delete_real_server(self, options: dict[str, str]) -> None:
        self._existing(options).weights.pop(_real_server(options), None)

    def _clear(self, _: dict[str, str]) -> None:
        self.servers.clear()

    def _existing(self, options: dict[str, str]) -> _PartialServer:
        server = self.servers.get(_key(options))
        if server is None:
            msg = "no line above adds the virtual server; the capture is incomplete: run `ipvsadm -Sn` again"
            raise CaptureError(msg)
        return server


def _options(words: list[str]) -> dict[str, str]:
    """Return the values of options by their short names; an option without a value has an empty one."""
    options: dict[str, str] = {}
    index = 0
    while index < len(words):
        name = _LONG.get(words[index], words[index])
        if not name.startswith("-"):
            msg = f"unexpected word {abbreviated(name)}: it is neither an option nor the value of one"
            raise CaptureError(msg)
        index += 1
        has_value = name not in _WITHOUT_VALUE and index < len(words) and not words[index].startswith("-")
        options[name] = words[index] if has_value else ""
        index += has_value
    return options


def _key(options: dict[str, str]) -> _Key:
    if "-f" in options:
        msg = (
            f"the virtual server for firewall mark {abbreviated(options['-f'])} is not supported: "
            "delete its lines if packets to Services do not have that mark"
        )
        raise CaptureError(msg)
    for option, protocol in _PROTOCOLS.items():
        if option in options:
            address, port = _address_and_port(options[option])
            if not port:
                msg = "virtual servers for all ports (0) are not supported; delete their lines from the file"
                raise CaptureError(msg)
            return _Key(address, protocol, port)
    msg = "the virtual server is missing (-t, -u or --sctp-service)"
    raise CaptureError(msg)


def _real_server(options: dict[str, str]) -> tuple[int, int]:
    address, port = _address_and_port(options.get("-r", ""))
    return int(address), port


def _address_and_port(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]:")
    else:
        host, _, port = text.partition(":")
    try:
        address = ipaddress.ip_address("" if "%" in host else host)
    except ValueError as error:
        msg = f"{abbreviated(text)} is not an address with a port: {_ADVICE}"
        raise CaptureError(msg) from error
    return address, _number(port, _LAST_PORT)


def _number(text: str, last: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(last)) and int(text) <= last):
        msg = f"{abbreviated(text)} is not a number from 0 to {last}: {_ADVICE}"
        raise CaptureError(msg)
    return int(text)
