"""Fixtures: a network namespace, a KernelHarness in it, and a FlowCleaner on its conntrack table."""

from collections.abc import Iterator

import pytest

from tests.support.kernel_harness import KernelHarness
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import NODE
from tests.sync.recording_cleaner import RecordingCleaner
from tests.sync.udp_services import VERSIONS, node_object, service, slice_of


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Create a network namespace and put the calling thread into it."""
    namespace = Namespace.create("sync")
    with namespace.entered():
        yield namespace
    namespace.close()


@pytest.fixture
def harness(namespace: Namespace) -> KernelHarness:
    """Return a KernelHarness with both families, before its first object and first sync."""
    return KernelHarness(namespace)


@pytest.fixture
def recording_cleaner(namespace: Namespace) -> RecordingCleaner:
    """Return a cleaner without reported syncs, on a node with addresses and a Service in all protocols."""
    with netlink(namespace) as link:
        link.up("lo")
        link.add_loopback_addresses(NODE.lan)
    harness = KernelHarness(namespace)
    harness.apply(service(), node_object(), *(slice_of(version) for version in VERSIONS))
    return RecordingCleaner(harness)
