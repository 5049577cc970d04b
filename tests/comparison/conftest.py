"""A node in a namespace of its own, with kube-proxy's rules for the examples."""

from collections.abc import Iterator

import pytest

from tests.comparison.examples import ADDRESSES, load_iptables
from tests.support.lab.namespace import Namespace


@pytest.fixture
def node() -> Iterator[Namespace]:
    """The node of the examples, without rules."""
    namespace = Namespace.create("live")
    namespace.run(["ip", "link", "set", "lo", "up"])
    for address in ADDRESSES:
        namespace.run(["ip", "address", "add", address, "dev", "lo"])
    yield namespace
    namespace.close()


@pytest.fixture
def served(node: Namespace) -> Namespace:
    """The same with the rules of kube-proxy's iptables mode, in iptables-nft."""
    load_iptables(node)
    return node
