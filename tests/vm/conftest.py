"""Fixtures of the tests that run in the virtual machine: those of the folders whose tests they are like."""

from tests.packets.conftest import lab
from tests.takeover.conftest import old_node

__all__ = ["lab", "old_node"]
