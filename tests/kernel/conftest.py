"""A Proxier of each family on a real kernel, in a namespace of the test's own, whose transactions can be read."""

from collections.abc import Iterator

import pytest

from tests.kernel.harness import KernelHarness
from tests.support.lab.namespace import Namespace


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """The calling thread is in a new namespace, and the kernel's tables there are the test's."""
    made = Namespace.create("kernel")
    with made.entered():
        yield made
    made.close()


@pytest.fixture
def harness(namespace: Namespace) -> KernelHarness:
    """Both families, without objects, not yet synced."""
    return KernelHarness(namespace)
