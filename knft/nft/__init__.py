"""The nftables vocabulary: immutable values for expressions, rules, chains, sets, maps and transactions.

It does not depend on Kubernetes and performs no I/O. ``codec`` alone converts these values to JSON and nft text.
"""
