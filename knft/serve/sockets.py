"""Listening sockets: where servers are to be found."""

import errno
import ipaddress
import resource
import socket
from contextlib import suppress

from knft.errors import UsageError
from knft.model.names import Family

WILDCARDS = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 - what kube-proxy serves on

FAMILIES = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}

_BACKLOG = 128
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_ENOUGH_FILES = 1 << 16


def split_address(text: str) -> tuple[str, int]:
    """Return the address and the port of ``IP:port``; raise UsageError where it is none."""
    host, _, port = text.rpartition(":")
    with suppress(ValueError):
        address, number = ipaddress.ip_address(host.removeprefix("[").removesuffix("]")), int(port)
        if 0 < number <= 65535:  # noqa: PLR2004 - port numbers end there
            return str(address), number
    msg = f"{text!r} is not an address to serve at; write it as in 0.0.0.0:10256 or [::]:10256"
    raise UsageError(msg)


def listen_at(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OSError where there is none to be had.

    Either wildcard address means every address of both families, as in kube-proxy; 0.0.0.0 also without any IPv6.
    """
    if host not in WILDCARDS.values():
        return _listen(socket.AF_INET6 if ":" in host else socket.AF_INET, host, port)
    try:
        return _listen(socket.AF_INET6, WILDCARDS[Family.IPV6], port, both=True)
    except OSError as error:
        if host != WILDCARDS[Family.IPV4] or error.errno not in _NO_IPV6:
            raise
        return _listen(socket.AF_INET, host, port)


def listen_in_family(family: Family, address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of ``family``, the wildcard too, and in no other family."""
    return _listen(FAMILIES[family], address, port)


def _listen(family: socket.AddressFamily, address: str, port: int, *, both: bool = False) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # A port whose last connections have not timed out yet is free.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def allow_many_files() -> None:
    """Raise this process's limit of open files where it may: each health check port is one, in each family."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft not in (resource.RLIM_INFINITY, wanted) and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
