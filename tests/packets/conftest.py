"""The lab, and servers in it, for every test that sends packets."""

from collections.abc import Iterator

import pytest

from tests.lab.responders import Responders
from tests.lab.topology import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One lab for the session; its remote node also has an address that the Service CIDR leaves unallocated."""
    with Lab(local_pods=4, remote_pods=8) as built:
        yield built


@pytest.fixture
def responders() -> Iterator[Responders]:
    """Servers of one test."""
    with Responders() as servers:
        yield servers
