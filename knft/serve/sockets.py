"""Listening sockets for the HTTP servers."""

import errno
import ipaddress
import resource
import socket
from contextlib import suppress

from knft.errors import UsageError
from knft.families import Family, family_of

WILDCARDS = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 - kube-proxy's default, too

_BACKLOG = 128
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_WANTED_FILES = 1 << 16


def split_address(text: str) -> tuple[str, int]:
    """Return the address and the port of ``IP:port``; raise UsageError if ``text`` is something else."""
    host, _, port = text.rpartition(":")
    with suppress(ValueError):
        address, number = ipaddress.ip_address(host.removeprefix("[").removesuffix("]")), int(port)
        if 0 < number <= 65535:  # noqa: PLR2004 - the largest port number
            return str(address), number
    msg = f"invalid bind address {text!r}: expected IP:port, such as 0.0.0.0:10256 or [::]:10256"
    raise UsageError(msg)


def listen_at(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OSError if the address is unavailable.

    Either wildcard address means all addresses of both families, as in kube-proxy. Without IPv6 in the kernel, 0.0.0.0
    means all IPv4 addresses.
    """
    if host not in WILDCARDS.values():
        return _listen(family_of(host), host, port)
    try:
        return _listen(Family.IPV6, WILDCARDS[Family.IPV6], port, dual_stack=True)
    except OSError as error:
        if host != WILDCARDS[Family.IPV4] or error.errno not in _NO_IPV6:
            raise
        return _listen(Family.IPV4, host, port)


def listen_in_one_family(family: Family, address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of ``family``; the wildcard means this family alone."""
    return _listen(family, address, port)


def _listen(family: Family, address: str, port: int, *, dual_stack: bool = False) -> socket.socket:
    listening_socket = socket.socket(family.number, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # Connections in TIME_WAIT, left by the previous process, must not block the port.
        listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is Family.IPV6:
            listening_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        listening_socket.bind((address, port))
        listening_socket.listen(_BACKLOG)
    except BaseException:
        listening_socket.close()
        raise
    return listening_socket


def raise_file_limit() -> int:
    """Raise the process's limit of open files, and return it.

    Each health check port needs one socket in each family, and each connection one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft not in (resource.RLIM_INFINITY, limit) and soft < limit:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return limit
    return _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
