"""A network namespace of the test's own, with a Proxier for each family whose transactions can be inspected."""

from collections.abc import Iterator

import pytest

from tests.support.kernel_harness import KernelHarness
from tests.support.lab.namespace import Namespace


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """Create a network namespace and put the calling thread into it."""
    made = Namespace.create("kernel")
    with made.entered():
        yield made
    made.close()


@pytest.fixture
def harness(namespace: Namespace) -> KernelHarness:
    """Both families, without objects and without a sync."""
    return KernelHarness(namespace)
