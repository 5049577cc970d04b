"""knft: a Kubernetes Service proxy whose nftables rules never grow.

The packages are the stages of a pipeline, in the order of the data: ``source`` → ``track`` → ``decide`` → ``render`` →
``delta`` → ``kernel``. ``sync`` drives them, ``runner`` decides when, ``cli`` is the command line. ``model`` and
``nft`` are the two vocabularies.
"""

__version__ = "0.1.0"
