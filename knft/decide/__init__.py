"""Decisions: endpoints, traffic policies and ownership of frontends. Input: tracked objects; output: ServicePlans.

No I/O, no logging, no clock, no nftables. See docs/behaviour/endpoints.md.
"""
