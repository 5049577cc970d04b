"""Port ids of this process's netlink sockets, which identify its own changes."""

import sys

import pytest

from tests.support.lab.namespace import Namespace
from tests.support.nft_process import library_in

pytestmark = pytest.mark.kernel

CODE = """
import socket
from knft.kernel.libnftables import Library
from knft.kernel.netlink_port_ids import netlink_port_ids

route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
route.bind((0, 0))
print(len(netlink_port_ids()))
library = Library()
ports = netlink_port_ids()
library.run("add table ip knft")
print(len(ports), ports == netlink_port_ids())
"""


def test_ports_are_those_of_own_netfilter_sockets(namespace: Namespace) -> None:
    """Without sockets of other protocols and other processes; the library keeps its port id."""
    library_in(namespace).run("list tables")
    assert namespace.run([sys.executable, "-c", CODE]).stdout == "0\n1 True\n"
