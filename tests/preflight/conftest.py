"""Fixtures of tests/leftovers and tests/comparison: nodes with kube-proxy's rules, and the examples' node."""

from tests.support.example_node import kube_proxy_node, node
from tests.support.old_node import old_node

__all__ = ["kube_proxy_node", "node", "old_node"]
