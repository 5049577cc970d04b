"""Fixtures of tests/leftovers and tests/comparison: nodes with kube-proxy's rules, and the examples' node."""

from tests.comparison.conftest import node
from tests.leftovers.conftest import old_node

__all__ = ["node", "old_node"]
