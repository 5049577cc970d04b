"""Parses WHAT of ``knft explain``: a Service, an address with or without a port, or a NodePort."""

import re

from msgspec import Struct

from knft.errors import UsageError
from knft.families import Family
from knft.model.addresses import parse_address
from knft.model.names import NamespacedName
from knft.protocols import NFT_PROTOCOLS, Protocol

_SOCKET = re.compile(
    r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<ipv4>[^\[\]:/]*)):(?P<port>[^/:]*)(?:/(?P<protocol>.*))?", re.DOTALL
)
_SERVICE = re.compile(r"(?:(?P<namespace>[^/:]*)/)?(?P<name>[^/:]*)(?::(?P<port>[^/:]*))?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PORT_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?")
_FORMS = "a Service (namespace/name), an address, ADDRESS:PORT/PROTOCOL, or a NodePort (:PORT/PROTOCOL)"
_NO_ADDRESS = "is not an IP address"
_LAST_PORT = 65535


class ServiceQuery(Struct, frozen=True):
    """A Service, and the name of one of its ports; None for all ports."""

    text: str
    service: NamespacedName
    port: str | None = None


class AddressQuery(Struct, frozen=True):
    """An address, with a port and a protocol if ``port`` is not 0."""

    text: str
    family: Family
    address: str
    port: int = 0
    protocol: Protocol = "TCP"

    @property
    def what(self) -> str:
        """The address in its canonical form, with the port and the protocol if they are given."""
        return self.text if self.port else self.address


class NodePortQuery(Struct, frozen=True):
    """A NodePort, at any address of the node."""

    text: str
    port: int
    protocol: Protocol = "TCP"


Query = ServiceQuery | AddressQuery | NodePortQuery


def parse_query(text: str) -> Query:
    """Return what the text names; raise UsageError."""
    try:
        return _parse(text)
    except _PartError as error:
        where = "" if error.part == text else f", in {text!r}"
        msg = f"WHAT: {error.part!r} {error.problem}{where}; expected {_FORMS}"
        raise UsageError(msg) from None


class _PartError(Exception):
    """A part of WHAT is invalid."""

    def __init__(self, part: str, problem: str) -> None:
        super().__init__(problem)
        self.part, self.problem = part, problem


def _parse(text: str) -> Query:
    if "://" in text:
        host = re.split("[/?#]", text.partition("://")[2])[0]
        msg = f"WHAT: {text!r} is a URL{f'; use {host!r}' if host else ''}; expected {_FORMS}"
        raise UsageError(msg)
    in_brackets = text.startswith("[") and text.endswith("]")
    address = parse_address(text[1:-1] if in_brackets else text)
    if address is not None:
        return AddressQuery(text, *address)
    socket = _SOCKET.fullmatch(text)
    return _service(text) if socket is None or _is_service_port(socket) else _node_port_or_frontend(socket)


def _is_service_port(found: re.Match[str]) -> bool:
    """Tell whether a text such as ``web:http`` names a Service and its port, not an address and its port."""
    where = found["ipv4"] or ""
    return found["protocol"] is None and bool(_NAME.fullmatch(where) and re.search("[a-z]", where))


def _node_port_or_frontend(found: re.Match[str]) -> Query:
    where = found["ipv6"] if found["ipv6"] is not None else found["ipv4"]
    port, protocol = _port(found["port"]), _protocol(found["protocol"])
    if not where and found["ipv6"] is None:
        return NodePortQuery(_in_full("", port, protocol), port, protocol)
    address = parse_address(where)
    if address is None:
        raise _PartError(where, _NO_ADDRESS)
    return AddressQuery(_in_full(address[1], port, protocol), *address, port, protocol)


def _in_full(address: str, port: int, protocol: Protocol) -> str:
    return f"{f'[{address}]' if ':' in address else address}:{port}/{NFT_PROTOCOLS[protocol]}"


def _port(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= _LAST_PORT:
        raise _PartError(text, f"is not a port from 1 to {_LAST_PORT}")
    return int(text)


def _protocol(text: str | None) -> Protocol:
    wanted = "TCP" if text is None else text.upper()
    found = next((name for name in NFT_PROTOCOLS if name == wanted), None)
    if found is None:
        raise _PartError(text or "", "is not a protocol of Services; use tcp, udp or sctp")
    return found


def _service(text: str) -> ServiceQuery:
    found = _SERVICE.fullmatch(text)
    if found is None:
        more = "; write an IPv6 address with a port in brackets" if text.count(":") > 1 else ""
        msg = f"WHAT: {text!r} is not {_FORMS}{more}"
        raise UsageError(msg)
    name, port = found["name"], found["port"]
    namespace = "default" if found["namespace"] is None else found["namespace"]
    if not _NAMESPACE.fullmatch(namespace):
        raise _PartError(namespace, "is not the name of a namespace")
    if re.fullmatch(r"[0-9.]+", name):
        raise _PartError(name, _NO_ADDRESS)
    if not _NAME.fullmatch(name):
        raise _PartError(name, "is not the name of a Service")
    if port is not None and not _PORT_NAME.fullmatch(port):
        raise _PartError(port, "is not the name of a port")
    return ServiceQuery(text, NamespacedName(namespace, name), port)
