"""Encodes the nftables vocabulary as JSON for libnftables and as nft text, and decodes listings.

The two encodings of a value are defined side by side. libnftables-json(5) describes the JSON. Both 1.0.6 and 1.1.3
accept the forms used here and list them unchanged, except for those in ``rule_digests._normalized``.
"""
