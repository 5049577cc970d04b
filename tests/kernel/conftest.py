"""Fixtures: a network namespace for each test, and a KernelHarness in it, whose transactions can be inspected."""

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
    """Return a KernelHarness with both families, before its first object and first sync."""
    return KernelHarness(namespace)
