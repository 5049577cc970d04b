"""Fixtures of the tests that run in the virtual machine, from tests/packets and tests/leftovers."""

from tests.leftovers.conftest import old_node
from tests.packets.conftest import lab

__all__ = ["lab", "old_node"]
