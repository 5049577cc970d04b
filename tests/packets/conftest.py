"""Fixtures for tests that send packets: the lab, and a node with knft's stages in this process."""

from collections.abc import Iterator

import pytest

from knft.render import fragment, maglev
from tests.support.lab import plan
from tests.support.lab.outcomes import Protocol
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.packets.many_clients import ADMIN, HTTP, PODS, OutsideClients, add_client_addresses
from tests.support.packets.programmed import ProgrammedNode
from tests.support.packets.session_lab import lab

__all__ = ["lab", "lab_with_clients", "node", "outside"]


@pytest.fixture(scope="session")
def lab_with_clients(lab: Lab) -> Lab:
    """The lab; the outside host has 65 000 more addresses in each family."""
    add_client_addresses(lab)
    return lab


@pytest.fixture
def node(lab_with_clients: Lab) -> Iterator[ProgrammedNode]:
    """The node under test, with servers on every pod of ``many_clients.PODS``."""
    with Responders() as servers, ProgrammedNode(lab_with_clients) as programmed:
        for pod in PODS:
            for port in (HTTP, ADMIN):
                servers.serve(lab_with_clients.host(pod), port, "tcp")
                servers.serve(lab_with_clients.host(pod), port, "udp")
        yield programmed


@pytest.fixture
def outside(node: ProgrammedNode, version: plan.Version, protocol: Protocol) -> OutsideClients:
    """Clients on the outside host, in the test's family and protocol."""
    return OutsideClients(node, version, protocol)


@pytest.fixture
def small_tables() -> Iterator[None]:
    """Tables of hashes have 61 slots with up to three endpoints, and 509 with more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maglev, "TABLE_SIZES", (61, 509))
        fragment._chains_of.cache_clear()
        yield
    fragment._chains_of.cache_clear()
