"""Reads what iptables-save, ip6tables-save and ``ipset save`` print, and input of iptables-restore.

Text in, a ``RuleSet`` out. What is no such text is a CaptureError that names the line; what is a rule and is not
interpreted becomes ``Unknown``, with the option's own words. It reads no file, asks no kernel, and skips nothing.
"""

from knft.interpret.iptables.capture import read
from knft.interpret.iptables.ipsets import read_sets

__all__ = ["read", "read_sets"]
