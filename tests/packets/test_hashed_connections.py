"""Established connections of a Service with consistent hashing whose packets a router sends to another node."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

import pytest
from msgspec import structs

from tests.support.families import addresses
from tests.support.kernel_harness import CONFIG
from tests.support.lab import plan
from tests.support.lab.links import netlink
from tests.support.lab.topology import Host
from tests.support.lab.traffic import OpenConnection
from tests.support.packets.hashed_service import REMOTE_NODE, SLICE, hashed
from tests.support.packets.many_clients import PODS
from tests.support.packets.programmed import ProgrammedNode
from tests.support.scenario import VERSIONS, address

pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("version", VERSIONS)]

FRONTEND = "external.5", 80
SOURCE_PORTS = range(23000, 23004)
QUIET_SECONDS = 0.1


@pytest.mark.parametrize("load_balancing", ["maglev", "source-hash"])
def test_other_node_chooses_the_same_endpoint(node: ProgrammedNode, version: plan.Version, load_balancing: str) -> None:
    """The endpoint resets the connection, because the packets now come from the other node's address."""
    objects, client = [hashed(load_balancing), SLICE], node.lab.host("outside")
    node.apply(objects)
    target, config = address(FRONTEND[0], version), structs.replace(CONFIG, node_name=plan.REMOTE.node_name)
    with ProgrammedNode(node.lab, config, REMOTE_NODE, plan.REMOTE.host) as remote:
        remote.apply(objects)
        for source_port in SOURCE_PORTS:
            with (
                _listening({pod: node.lab.host(pod) for pod in PODS}, version) as sockets,
                OpenConnection(client, target, FRONTEND[1], source_port=source_port) as connection,
            ):
                assert connection.echoes(b"through the node")
                assert {pod for pod, each in sockets.items() if _has_received(each)} == {connection.server}
                with _routed_to_remote_node(client):
                    assert connection.send(b"through the other node") == "reset"
                assert {pod for pod, each in sockets.items() if _has_received(each)} == {connection.server}


@contextmanager
def _listening(hosts: Mapping[str, Host], version: plan.Version) -> Iterator[dict[str, socket.socket]]:
    """Open a socket on each host that gets a copy of each TCP segment."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with ExitStack() as stack:
        sockets = {}
        for name, host in hosts.items():
            with host.namespace.entered():
                sockets[name] = stack.enter_context(socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP))
        yield sockets


def _has_received(raw: socket.socket) -> bool:
    """Return whether segments have arrived since the last call, when none has arrived for a while.

    The first one through the other node may be an acknowledgement without data, and the last one may arrive after the
    reset.
    """
    raw.settimeout(QUIET_SECONDS)
    count = 0
    with suppress(TimeoutError):
        while raw.recv(1 << 16):
            count += 1
    return count > 0


@contextmanager
def _routed_to_remote_node(host: Host) -> Iterator[None]:
    """Route the frontend's addresses through the other node."""
    found = addresses(FRONTEND[0])
    networks = plan.Addresses(f"{found.ipv4}/32", f"{found.ipv6}/128")
    with netlink(host.namespace) as link:
        link.add_routes(networks, plan.REMOTE.lan)
    try:
        yield
    finally:
        with netlink(host.namespace) as link:
            link.remove_routes(networks, plan.REMOTE.lan)
