"""Reads what ``nft -j list ruleset`` prints (libnftables 1.0.1 to 1.1.x) into a rule set of one IP family.

Text in, values out: no file, no kernel. A rule that is not interpreted is never passed over; what no nft could have
printed is an error with its place. Tables of the families ``bridge``, ``arp`` and ``netdev`` are not read, nor base
chains of ``inet`` tables at ``ingress``: what they do happens before IP.
"""

from knft.interpret.nftables.read import read

__all__ = ["read"]
