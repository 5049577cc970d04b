"""A namespace of the test's own, whose conntrack can be filled."""

from collections.abc import Iterator

import pytest

from tests.lab.namespace import Namespace


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """The calling thread is in a new namespace."""
    made = Namespace.create("conntrack")
    with made.entered():
        yield made
    made.close()
