"""IPVS and links, through netlink: read, and taken away one by one."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knft.errors import KernelError
from knft.kernel import programs

# Of the calling thread: /proc/net is the network namespace of the process's first one.
_SERVERS = Path("/proc/thread-self/net/ip_vs")
_PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP, "sctp": socket.IPPROTO_SCTP}


@dataclass(frozen=True, slots=True)
class Device:
    """A link: what kind the kernel says it is, and its addresses."""

    name: str
    kind: str
    addresses: frozenset[str]


def read_servers(path: Path = _SERVERS) -> str | None:
    """Return the table of virtual servers, or None where this kernel has IPVS not loaded, and so none of them.

    It is read from /proc, as asking over netlink would load the module.
    """
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"the virtual servers cannot be read: {error}"
        raise KernelError(msg) from error


def save_servers(seconds: float) -> str | None:
    """Return the virtual servers as ``ipvsadm -Sn`` prints them, None without the program; raise KernelError.

    /proc has them too, but for how long a client stays, which it tells in the kernel's own ticks. To be asked where
    ``read_servers`` has found any: otherwise the kernel may load a module because of the question.
    """
    program = programs.find("ipvsadm")
    return None if program is None else programs.run([program, "-Sn"], seconds)


def delete_server(address: str, protocol: str, port: int) -> None:
    """Delete a virtual server and its real servers; harmless where it is gone. Raises KernelError."""
    from pyroute2 import IPVS, IPVSService  # type: ignore[import-untyped]  # noqa: PLC0415 - heavy

    with _refusals(f"the virtual server {protocol} {address} port {port}", errno.ESRCH), IPVS() as ipvs:
        ipvs.service("del", service=IPVSService(addr=address, port=port, protocol=_PROTOCOLS[protocol]))


def read_device(name: str) -> Device | None:
    """Return the link of that name, or None where there is none; raise KernelError where it cannot be read."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - heavy

    with _refusals(f"the device {name}"), IPRoute() as route:
        for index in route.link_lookup(ifname=name):
            (link,) = route.get_links(index)
            # With a family each: without one, pyroute2 asks for IPv4 alone in some versions.
            addresses = [
                address.get("IFA_LOCAL") or address.get("IFA_ADDRESS")
                for family in (socket.AF_INET, socket.AF_INET6)
                for address in route.get_addr(family=family, index=index)
            ]
            return Device(name, _kind(link), frozenset(addresses))
    return None


def delete_device(name: str) -> None:
    """Delete a link; harmless where it is gone. Raises KernelError."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - heavy

    with _refusals(f"the device {name}", errno.ENODEV), IPRoute() as route:
        for index in route.link_lookup(ifname=name):
            route.link("del", index=index)


def _kind(link: Any) -> str:  # noqa: ANN401 - pyroute2 has no types
    information = link.get("IFLA_LINKINFO")
    return str(information.get("IFLA_INFO_KIND") or "") if information else ""


@contextmanager
def _refusals(what: str, *harmless: int) -> Iterator[None]:
    from pyroute2 import NetlinkError  # noqa: PLC0415 - heavy

    try:
        yield
    except (NetlinkError, OSError) as error:
        code = error.code if isinstance(error, NetlinkError) else error.errno
        if code not in harmless:
            msg = f"{what} was refused by the kernel: {error}"
            raise KernelError(msg) from error
