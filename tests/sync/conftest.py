"""A network namespace whose conntrack table a test can fill, and a FlowCleaner on it."""

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
    namespace = Namespace.create("conntrack")
    with namespace.entered():
        yield namespace
    namespace.close()


@pytest.fixture
def recording_cleaner(namespace: Namespace) -> RecordingCleaner:
    """Return a cleaner without reported syncs, on a node with addresses and a Service in all protocols."""
    with netlink(namespace) as link:
        link.up("lo")
        link.add_loopback_addresses(NODE.lan)
    harness = KernelHarness(namespace)
    harness.apply(service(), node_object(), *(slice_of(version) for version in VERSIONS))
    return RecordingCleaner(harness)
