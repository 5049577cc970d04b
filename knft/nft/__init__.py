"""The nftables vocabulary: immutable values for expressions, rules, chains, containers and transactions.

It does not depend on Kubernetes and performs no I/O. ``codec`` alone converts these values to JSON and nft text.
"""
