"""knft: a Kubernetes Service proxy whose nftables rules never grow.

The packages are the stages of one pipeline, in the order in which data passes them:
``source`` → ``track`` → ``decide`` → ``render`` → ``delta`` → ``kernel``; ``sync`` drives them, ``runner``
says when, ``cli`` is what people type. ``model`` and ``nft`` are the two vocabularies.
"""

__version__ = "0.1.0"
