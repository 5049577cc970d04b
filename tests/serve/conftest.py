"""Fixtures: a network namespace in which every port is free, and servers and a node in it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.serve.node import MonitoredNode
from tests.serve.standalone import StartServers
from tests.support.lab.namespace import Namespace


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A new namespace with a loopback interface, entered by this thread and the threads that it starts."""
    made = Namespace.create("serve")
    with made.entered():
        made.run(["ip", "link", "set", "lo", "up"])
        yield made
    made.close()


@pytest.fixture
def start(namespace: Namespace) -> Iterator[StartServers]:  # noqa: ARG001 - its ports
    """A function that starts servers in the namespace."""
    with ExitStack() as stack:
        yield StartServers(stack)


@pytest.fixture
def node(namespace: Namespace) -> Iterator[MonitoredNode]:
    with MonitoredNode(namespace) as node:
        yield node
