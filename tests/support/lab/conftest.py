"""Fixtures of the lab's own tests: one lab for each module, in which everybody answers."""

import itertools
from collections.abc import Iterator

import pytest

from .links import forget_flows
from .namespace import Namespace
from .responders import Responders
from .topology import Lab
from .ways import PORT, PROTOCOLS


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """One lab for all tests; they leave no rules behind."""
    with Lab() as built:
        yield built


@pytest.fixture(scope="module")
def responders(lab: Lab) -> Iterator[Responders]:
    """Answer at PORT on every host, in both protocols."""
    with Responders() as servers:
        for host, protocol in itertools.product(lab, PROTOCOLS):
            servers.serve(host, PORT, protocol)
        yield servers


@pytest.fixture
def node(lab: Lab) -> Iterator[Namespace]:
    """Give the node under test, whose rules and flows are flushed afterwards."""
    namespace = lab.host("node").namespace
    yield namespace
    namespace.run(["nft", "flush", "ruleset"])
    forget_flows(namespace)
