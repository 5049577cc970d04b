"""Decisions: which endpoints, which policy, whose frontend. Values in, a ServicePlan out (behaviour.md B, C.6).

Nothing here performs I/O, logs, reads a clock, or knows nftables.
"""
