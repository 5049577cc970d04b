"""Fixtures: a node in its own network namespace, without rules or with kube-proxy's rules for the examples."""

from collections.abc import Iterator

import pytest

from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.loaded_examples import ADDRESSES, load_iptables


@pytest.fixture
def node() -> Iterator[Namespace]:
    """Return the examples' node with its addresses and no rules."""
    namespace = Namespace.create("live")
    namespace.run(["ip", "link", "set", "lo", "up"])
    with netlink(namespace) as link:
        for address in ADDRESSES:
            link.add_loopback_address(address)
    yield namespace
    namespace.close()


@pytest.fixture
def kube_proxy_node(node: Namespace) -> Namespace:
    """Return the node with the rules of kube-proxy's iptables mode, loaded by iptables-nft."""
    load_iptables(node)
    return node
