"""The Kubernetes vocabulary: frozen values that the stages hand to each other.

Nothing here performs I/O, knows nftables, or reads a clock.
"""
