"""The Kubernetes vocabulary: frozen values that the stages of the pipeline pass to each other.

No I/O, no nftables, no clock.
"""
