"""Fixtures of the tests that run in the virtual machine, from tests/packets and tests/leftovers."""

from tests.support.old_node import old_node
from tests.support.packets.session_lab import lab

__all__ = ["lab", "old_node"]
