"""Tests on a real kernel: transactions, listings, notifications, conntrack, and the processes around libnftables."""
