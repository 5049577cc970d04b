"""The lab, for every test that sends packets."""

from collections.abc import Iterator

import pytest

from tests.lab import plan
from tests.lab.links import netlink
from tests.lab.topology import Lab
from tests.packets.scenario import UNALLOCATED


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One lab for the session.

    Its remote node also has an address that no Service has: a packet to it that is not dropped is answered.
    """
    with Lab(local_pods=4, remote_pods=8) as built:
        with netlink(built.host("remote").namespace) as link:
            link.add_addresses("eth0", UNALLOCATED, by_default=False)
        with netlink(built.host("node").namespace) as link:
            link.add_routes(plan.Addresses(f"{UNALLOCATED.ipv4}/32", f"{UNALLOCATED.ipv6}/128"), plan.REMOTE.lan)
        yield built
