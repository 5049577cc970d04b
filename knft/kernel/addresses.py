"""The addresses of this machine's interfaces, through netlink."""

import socket

from knft.errors import KernelError


def local_addresses() -> frozenset[str]:
    """Return every address of every interface, as canonical text, loopback and link-local ones included."""
    from pyroute2 import (  # type: ignore[import-untyped]  # noqa: PLC0415 - heavy, only `run` needs it
        IPRoute,
        NetlinkError,
    )

    try:
        with IPRoute() as netlink:
            messages = [
                message for family in (socket.AF_INET, socket.AF_INET6) for message in netlink.get_addr(family=family)
            ]
    except (NetlinkError, OSError) as error:
        msg = f"the machine's addresses cannot be read: {error}"
        raise KernelError(msg) from error
    # IFA_LOCAL is this end's address on a point-to-point link, where IFA_ADDRESS is the other's.
    found = (message.get("IFA_LOCAL") or message.get("IFA_ADDRESS") for message in messages)
    return frozenset(address for address in found if address)
