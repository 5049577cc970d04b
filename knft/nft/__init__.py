"""The nftables vocabulary: frozen values for expressions, chains, containers and transactions.

It knows no Kubernetes and performs no I/O. What these values look like as JSON and as nft text is written down in
``codec`` and nowhere else.
"""
