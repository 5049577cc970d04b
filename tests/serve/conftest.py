"""Namespaces with a loopback interface, in which every port is free; and a node that is served there."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import tests.support.kernel_harness
from tests.serve.node import MonitoredNode
from tests.serve.standalone import StartServers
from tests.support.lab.namespace import Namespace


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """The calling thread is in a new namespace, and with it every thread that it starts."""
    made = Namespace.create("serve")
    with made.entered():
        made.run(["ip", "link", "set", "lo", "up"])
        yield made
    made.close()


@pytest.fixture
def start(namespace: Namespace) -> Iterator[StartServers]:  # noqa: ARG001 - its ports
    """Starts servers in it."""
    with ExitStack() as stack:
        yield StartServers(stack)


@pytest.fixture(autouse=True)
def _without_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holding transactions against the schema is others' work, and takes longer than everything else here."""
    monkeypatch.setattr(tests.support.kernel_harness, "check_schema", lambda _document: None)


@pytest.fixture
def node(namespace: Namespace) -> Iterator[MonitoredNode]:
    with MonitoredNode(namespace) as node:
        yield node
