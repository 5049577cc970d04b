"""Reads what ``nft -j list ruleset`` prints (libnftables 1.0.1 to 1.1.x) into a rule set of one IP family.

It takes text and returns values; it reads no files and does not ask the kernel. A rule that is not interpreted gets an
``Unknown`` step. Text that nft cannot have printed is a CaptureError that names the place. Tables of the families
``bridge``, ``arp`` and ``netdev`` and base chains at ``ingress`` are ignored, since packets pass them before IP.
"""

from knft.interpret.nftables.read import read

__all__ = ["read"]
