"""Decisions: endpoints, traffic policies and ownership of frontends.

Input: ServicePorts, Endpoints and the Node; output: ServicePlans, the NodeView (``node``), the owners of frontends
(``frontends``), which UDP conntrack entries are stale (``stale_flows``), and which TCP connections to end
(``lost_endpoints``). No I/O, no logging, no clock, no nftables.
See docs/behaviour/endpoints.md.
"""
