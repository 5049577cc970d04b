"""The lab, for every test that sends packets."""

from collections.abc import Iterator

import pytest

from tests.lab import plan
from tests.lab.links import netlink
from tests.lab.topology import Lab
from tests.packets.scenario import UNALLOCATED, UNPROXIED


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


def _host_routes(addresses: plan.Addresses) -> plan.Addresses:
    return plan.Addresses(f"{addresses.ipv4}/32", f"{addresses.ipv6}/128")
