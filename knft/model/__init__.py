"""The Kubernetes vocabulary: frozen values that the packages pass to each other.

No I/O, no nftables, no clock.
"""
