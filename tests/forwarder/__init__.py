"""Tests of NodePorts on loopback addresses; tests/packets/test_loopback_nodeports.py has those of a whole node."""
