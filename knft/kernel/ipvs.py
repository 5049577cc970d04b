"""IPVS virtual servers and network devices: reads and deletes them."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knft.errors import KernelError
from knft.kernel import programs
from knft.protocols import PROTOCOL_NUMBERS

# The calling thread's network namespace; /proc/net is that of the main thread.
_SERVERS = Path("/proc/thread-self/net/ip_vs")


@dataclass(frozen=True, slots=True)
class Device:
    """A network device: the kind that the kernel reports (IFLA_INFO_KIND), and its addresses."""

    name: str
    kind: str
    addresses: frozenset[str]


def read_servers(path: Path = _SERVERS) -> str | None:
    """Return the text of /proc/net/ip_vs, or None if IPVS is not loaded. Raises KernelError.

    Reading /proc does not load the module; a netlink request would.
    """
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"cannot read the IPVS virtual servers: {error}"
        raise KernelError(msg) from error


def save_servers(seconds: float) -> str | None:
    """Return the virtual servers as ``ipvsadm -Sn`` prints them, or None if ipvsadm is missing; raise KernelError.

    /proc reports persistence timeouts in kernel ticks, so it cannot replace this. Call this only if ``read_servers``
    found virtual servers: ipvsadm may load the module.
    """
    program = programs.find("ipvsadm")
    return None if program is None else programs.run([program, "-Sn"], seconds)


def delete_server(address: str, protocol: str, port: int) -> None:
    """Delete a virtual server with its real servers; succeed if it does not exist. Raises KernelError."""
    from pyroute2 import IPVS, IPVSService  # type: ignore[import-untyped]  # noqa: PLC0415 - slow to import

    with _kernel_errors(f"virtual server {protocol} {address} port {port}", errno.ESRCH), IPVS() as ipvs:
        ipvs.service("del", service=IPVSService(addr=address, port=port, protocol=PROTOCOL_NUMBERS[protocol]))


def read_device(name: str) -> Device | None:
    """Return the device of that name, or None if there is none; raise KernelError."""
    if name not in _device_names():
        return None  # without pyroute2, which `knft run` then does not import
    from pyroute2 import IPRoute  # noqa: PLC0415 - slow to import

    with _kernel_errors(f"device {name}"), IPRoute() as route:
        for index in route.link_lookup(ifname=name):
            (link,) = route.get_links(index)
            # One request for each family: without a family, some versions of pyroute2 return IPv4 only.
            addresses = [
                address.get("IFA_LOCAL") or address.get("IFA_ADDRESS")
                for family in (socket.AF_INET, socket.AF_INET6)
                for address in route.get_addr(family=family, index=index)
            ]
            return Device(name, _kind(link), frozenset(addresses))
    return None


def _device_names() -> set[str]:
    try:
        return {name for _, name in socket.if_nameindex()}
    except OSError as error:
        msg = f"cannot read the names of the network devices: {error.strerror or error}"
        raise KernelError(msg) from error


def delete_device(name: str) -> None:
    """Delete a device; succeed if it does not exist. Raises KernelError."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - slow to import

    with _kernel_errors(f"device {name}", errno.ENODEV), IPRoute() as route:
        for index in route.link_lookup(ifname=name):
            route.link("del", index=index)


def _kind(link: Any) -> str:  # noqa: ANN401 - pyroute2 has no types
    information = link.get("IFLA_LINKINFO")
    return str(information.get("IFLA_INFO_KIND") or "") if information else ""


@contextmanager
def _kernel_errors(what: str, *harmless: int) -> Iterator[None]:
    from pyroute2 import NetlinkError  # noqa: PLC0415 - slow to import

    try:
        yield
    except (NetlinkError, OSError) as error:
        code = error.code if isinstance(error, NetlinkError) else error.errno
        if code not in harmless:
            msg = f"the kernel refused the request for {what}: {error}"
            raise KernelError(msg) from error
