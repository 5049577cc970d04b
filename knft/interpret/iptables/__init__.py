"""Reads what iptables-save, ip6tables-save and ``ipset save`` print, and input of iptables-restore.

It takes text and returns a ``RuleSet``; it reads no files and does not ask the kernel. Other text raises a
CaptureError that names the line. An option that is not interpreted becomes an ``Unknown`` step.
"""

from knft.interpret.iptables.capture import read
from knft.interpret.iptables.ipsets import read_sets

__all__ = ["read", "read_sets"]
