"""A namespace of the test's own, whose conntrack can be filled."""

from collections.abc import Iterator

import pytest

from tests.conntrack.hearing import Hearing
from tests.conntrack.objects import BOTH, node_object, service, slice_of
from tests.kernel.harness import KernelHarness
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import NODE


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """The calling thread is in a new namespace."""
    made = Namespace.create("conntrack")
    with made.entered():
        yield made
    made.close()


@pytest.fixture
def hearing(namespace: Namespace) -> Hearing:
    """A node with its addresses, and one Service in all protocols; nobody was told yet."""
    with netlink(namespace) as link:
        link.up("lo")
        link.add_own_addresses(NODE.lan)
    harness = KernelHarness(namespace)
    harness.apply(service(), node_object(), *(slice_of(version) for version in BOTH))
    return Hearing(harness)
