"""Fixtures of the lab's own tests: one lab for each module, with servers on every host."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.lab.links import flush_conntrack
from tests.support.lab.namespace import Namespace
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.transports import PORT, PROTOCOLS


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """One lab for all tests of a module; they leave no rules behind."""
    with Lab() as built:
        yield built


@pytest.fixture(scope="module")
def responders(lab: Lab) -> Iterator[Responders]:
    """Run servers at PORT on every host, in both protocols."""
    with Responders() as servers:
        for host, protocol in itertools.product(lab, PROTOCOLS):
            servers.serve(host, PORT, protocol)
        yield servers


@pytest.fixture
def node(lab: Lab) -> Iterator[Namespace]:
    """The node under test; its rules and conntrack entries are flushed afterwards."""
    namespace = lab.host("node").namespace
    yield namespace
    namespace.run(["nft", "flush", "ruleset"])
    flush_conntrack(namespace)
