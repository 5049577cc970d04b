"""Reads the virtual servers that ``ipvsadm -Sn`` prints, and input of ``ipvsadm -R``.

What cannot be a ``Server`` is a CaptureError that says so, and is never passed over: servers that are found by a
packet's firewall mark or answer every port, and real servers that get packets without translation.
"""

import ipaddress
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import Struct

from knft.errors import CaptureError
from knft.interpret.rules import IpVersion, Server

_PROTOCOLS = {"-t": 6, "-u": 17, "--sctp-service": 132}
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
    """What a virtual server is found by."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    protocol: int
    port: int


class _Open(Struct):
    """A virtual server while its real servers are read."""

    scheduler: str
    seconds: int | None
    targets: dict[tuple[int, int], int]


def servers(text: str, version: IpVersion) -> tuple[Server, ...]:
    """Return the virtual servers of one family, in order; raise CaptureError."""
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            try:
                reader.line(words)
            except CaptureError as error:
                msg = f"line {number}: {error}"
                raise CaptureError(msg) from error
    return tuple(_of_version(reader.servers, version))


def _of_version(found: dict[_Key, _Open], version: IpVersion) -> Iterator[Server]:
    for key, server in found.items():
        if key.address.version == version:
            targets = tuple((address, port, weight) for (address, port), weight in server.targets.items())
            yield Server(int(key.address), key.protocol, key.port, server.scheduler, targets, server.seconds)


class _Reader:
    """What the lines so far have made."""

    def __init__(self) -> None:
        self.servers: dict[_Key, _Open] = {}
        self._commands: dict[str, Callable[[dict[str, str]], None]] = {
            "-A": self._add,
            "-E": self._add,
            "-D": self._delete,
            "-a": self._add_target,
            "-e": self._add_target,
            "-d": self._delete_target,
            "-C": self._clear,
        }

    def line(self, words: list[str]) -> None:
        """Read a line."""
        command = self._commands.get(_LONG.get(words[0], words[0]))
        if command is None:
            msg = f"{_quoted(' '.join(words))} is nothing that `ipvsadm -Sn` prints"
            raise CaptureError(msg)
        command(_options(words[1:]))

    def _add(self, options: dict[str, str]) -> None:
        key = _key(options)
        seconds = None
        if "-p" in options:
            seconds = _number(options["-p"], _LAST_NUMBER) if options["-p"] else _DEFAULT_SECONDS
        there = self.servers.get(key)
        targets = there.targets if there is not None else {}
        self.servers[key] = _Open(options.get("-s", _DEFAULT_SCHEDULER), seconds, targets)

    def _delete(self, options: dict[str, str]) -> None:
        self._there(options)
        del self.servers[_key(options)]

    def _add_target(self, options: dict[str, str]) -> None:
        server = self._there(options)
        if "-m" not in options:
            msg = (
                "the real server gets packets by direct routing or a tunnel, and only masquerading (-m) can be followed"
            )
            raise CaptureError(msg)
        server.targets[_target(options)] = _number(options.get("-w", "1"), _LAST_NUMBER)

    def _delete_target(self, options: dict[str, str]) -> None:
        self._there(options).targets.pop(_target(options), None)

    def _clear(self, _: dict[str, str]) -> None:
        self.servers.clear()

    def _there(self, options: dict[str, str]) -> _Open:
        found = self.servers.get(_key(options))
        if found is None:
            msg = "the virtual server was not added above: the capture is not whole, take it again"
            raise CaptureError(msg)
        return found


def _options(words: list[str]) -> dict[str, str]:
    """Return options and their values, by short names; an option without a value has an empty one."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words):
        name = _LONG.get(words[at], words[at])
        if not name.startswith("-"):
            msg = f"{_quoted(name)} belongs to no option"
            raise CaptureError(msg)
        at += 1
        has_value = name not in _WITHOUT_VALUE and at < len(words) and not words[at].startswith("-")
        found[name] = words[at] if has_value else ""
        at += has_value
    return found


def _key(options: dict[str, str]) -> _Key:
    if "-f" in options:
        msg = (
            f"the virtual server of firewall mark {_quoted(options['-f'])} cannot be followed: "
            "leave out its lines where no packets of Services have that mark"
        )
        raise CaptureError(msg)
    for option, protocol in _PROTOCOLS.items():
        if option in options:
            address, port = _address_and_port(options[option])
            if not port:
                msg = "a virtual server of every port (0) cannot be followed: leave out its lines, Services have none"
                raise CaptureError(msg)
            return _Key(address, protocol, port)
    msg = "no virtual server is named (-t, -u or --sctp-service)"
    raise CaptureError(msg)


def _target(options: dict[str, str]) -> tuple[int, int]:
    address, port = _address_and_port(options.get("-r", ""))
    return int(address), port


def _address_and_port(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    if text.startswith("["):
        where, _, port = text[1:].partition("]:")
    else:
        where, _, port = text.partition(":")
    try:
        address = ipaddress.ip_address("" if "%" in where else where)
    except ValueError as error:
        msg = f"{_quoted(text)} is no address with its port: {_ADVICE}"
        raise CaptureError(msg) from error
    return address, _number(port, _LAST_PORT)


def _number(text: str, last: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(last)) and int(text) <= last):
        msg = f"{_quoted(text)} is no number up to {last}: {_ADVICE}"
        raise CaptureError(msg)
    return int(text)


def _quoted(text: str) -> str:
    longest = 60
    return repr(text if len(text) <= longest else f"{text[:longest]}...")
