"""Port ids of this process's sockets, by which its own changes are recognised."""

import sys

import pytest

from knft.kernel.netlink_ports import netlink_ports
from tests.kernel.sockets import library_and_port, netfilter_sockets
from tests.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


def test_the_ports_are_those_of_this_process_in_use(namespace: Namespace) -> None:
    """Not sockets of other protocols, not other processes'; a library keeps the one it was given."""
    library, port = library_and_port()
    assert port in netlink_ports()
    library.run("add table ip knft")
    assert port in netfilter_sockets().values()
    code = (
        "import socket\n"
        "from knft.kernel.netlink_ports import netlink_ports\n"
        "route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)\n"
        "route.bind((0, 0))\n"
        "print(len(netlink_ports()))"
    )
    assert namespace.run([sys.executable, "-c", code]).stdout == "0\n"
