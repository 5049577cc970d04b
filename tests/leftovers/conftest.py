"""Fixture: a node on which kube-proxy may have run."""

from tests.support.old_node import old_node

__all__ = ["old_node"]
