"""Fixtures: the examples' node, without rules or with those of kube-proxy."""

from tests.support.example_node import kube_proxy_node, node

__all__ = ["kube_proxy_node", "node"]
