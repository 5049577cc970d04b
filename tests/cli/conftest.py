"""Fixtures of tests/cli: the examples' node with kube-proxy's rules."""

from tests.support.example_node import kube_proxy_node, node

__all__ = ["kube_proxy_node", "node"]
