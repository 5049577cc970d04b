"""Decisions: endpoints, traffic policies and ownership of frontends.

Input: ServicePorts, Endpoints and the NodeView; output: ServicePlans. No I/O, no logging, no clock, no nftables. See
docs/behaviour/endpoints.md.
"""
