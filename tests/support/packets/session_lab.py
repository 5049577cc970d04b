"""The lab of the tests that send packets, with addresses that are no frontends: one for the session."""

from collections.abc import Iterator

import pytest

from tests.support.lab import plan
from tests.support.lab.links import netlink
from tests.support.lab.topology import Lab
from tests.support.scenario import UNALLOCATED, UNPROXIED


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One lab for the session.

    The remote node also has addresses to which the node routes untranslated packets: a packet that is not dropped is
    answered. It routes answers to the outside client through the node, so that unmasqueraded clients are answered too.
    """
    with Lab(local_pods=4, remote_pods=8) as built:
        for addresses in (UNALLOCATED, *UNPROXIED):
            with netlink(built.host("remote").namespace) as link:
                link.add_addresses("eth0", addresses, by_default=False)
                link.wait_for_neighbor_discovery("eth0")
            with netlink(built.host("node").namespace) as link:
                link.add_routes(_host_routes(addresses), plan.REMOTE.lan)
        with netlink(built.host("remote").namespace) as link:
            link.add_routes(_host_routes(plan.OUTSIDE), plan.NODE.lan)
        yield built


def _host_routes(addresses: plan.Addresses) -> plan.Addresses:
    return plan.Addresses(f"{addresses.ipv4}/32", f"{addresses.ipv6}/128")
