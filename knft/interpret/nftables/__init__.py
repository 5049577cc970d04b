"""Reads what ``nft -j list ruleset`` prints (libnftables 1.0.1 to 1.1.x) into a rule set of one IP family.

It takes text and returns values; it reads no files and does not ask the kernel. A rule that is not interpreted gets an
``Unknown`` step. Text that nft cannot have printed raises a CaptureError that names the place. Limitation: tables of
the families ``bridge``, ``arp`` and ``netdev`` and base chains at ``ingress`` and ``egress`` are ignored, so packets
that such rules drop or change are traced as if the rules did not exist.
"""

from knft.interpret.nftables.read import read

__all__ = ["read"]
