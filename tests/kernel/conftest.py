"""Fixtures: a network namespace for each test, and in it a worker process, or a KernelHarness."""

from collections.abc import Iterator

import pytest

from knft.kernel.process import WorkerProcess
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


@pytest.fixture
def library(namespace: Namespace) -> Iterator[WorkerProcess]:
    """Start a worker process in the namespace."""
    del namespace  # The fixture has moved this thread into the namespace.
    with WorkerProcess() as started:
        yield started
