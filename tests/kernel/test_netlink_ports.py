"""Port ids of this process's sockets, by which its own changes are recognised."""

import sys

import pytest

from tests.kernel.nft_process import library_in
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

CODE = """
import socket
from knft.kernel.libnftables import Library
from knft.kernel.netlink_ports import netlink_ports

route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
route.bind((0, 0))
print(len(netlink_ports()))
library = Library()
ports = netlink_ports()
library.run("add table ip knft")
print(len(ports), ports == netlink_ports())
"""


def test_the_ports_are_those_of_this_process_in_use(namespace: Namespace) -> None:
    """Not sockets of other protocols, not other processes'; a library keeps the one it was given."""
    library_in(namespace).run("list tables")
    assert namespace.run([sys.executable, "-c", CODE]).stdout == "0\n1 True\n"
