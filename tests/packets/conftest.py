"""The lab, for every test that sends packets."""

from collections.abc import Iterator

import pytest

from tests.packets.crowd import ADMIN, HTTP, PODS, Dialler, gather
from tests.packets.programmed import ProgrammedNode
from tests.packets.scenario import UNALLOCATED, UNPROXIED
from tests.support.lab import plan
from tests.support.lab.links import netlink
from tests.support.lab.outcomes import Protocol
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One lab for the session.

    Its remote node also has addresses that the node sends it untouched packets to: what is not dropped is answered.
    Its pods answer the outside client through the node: who is not masqueraded is answered all the same.
    """
    with Lab(local_pods=4, remote_pods=8) as built:
        for addresses in (UNALLOCATED, *UNPROXIED):
            with netlink(built.host("remote").namespace) as link:
                link.add_addresses("eth0", addresses, by_default=False)
            with netlink(built.host("node").namespace) as link:
                link.add_routes(_host_routes(addresses), plan.REMOTE.lan)
        with netlink(built.host("remote").namespace) as link:
            link.add_routes(_host_routes(plan.OUTSIDE), plan.NODE.lan)
        yield built


@pytest.fixture(scope="session")
def crowded_lab(lab: Lab) -> Lab:
    """The lab, with an outside host that has 65 000 addresses in each family."""
    gather(lab)
    return lab


@pytest.fixture
def node(crowded_lab: Lab) -> Iterator[ProgrammedNode]:
    """The node, with servers on every pod of ``crowd.PODS``."""
    with Responders() as servers, ProgrammedNode(crowded_lab) as programmed:
        for pod in PODS:
            for port in (HTTP, ADMIN):
                servers.serve(crowded_lab.host(pod), port, "tcp")
                servers.serve(crowded_lab.host(pod), port, "udp")
        yield programmed


@pytest.fixture
def outside(node: ProgrammedNode, version: plan.Version, protocol: Protocol) -> Dialler:
    """The outside host, dialling in the test's family and protocol."""
    return Dialler(node, version, protocol)


def _host_routes(addresses: plan.Addresses) -> plan.Addresses:
    return plan.Addresses(f"{addresses.ipv4}/32", f"{addresses.ipv6}/128")
