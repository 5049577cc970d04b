"""The plan for one Service port (C.6, 1 to 5)."""

from knft.decide.endpoints import Endpoints, categorize_endpoints
from knft.model import addresses
from knft.model.names import ServicePortName
from knft.model.node import NodeView
from knft.model.plan import CategorizedEndpoints, Frontend, ServicePlan, TrafficAction
from knft.model.service_port import ServicePort


def plan_service_port(
    name: ServicePortName,
    port: ServicePort,
    endpoints: Endpoints,
    frontends: tuple[Frontend, ...],
    node: NodeView,
) -> ServicePlan:
    """Decide what becomes of the traffic to ``frontends``, those that the Service port owns."""
    chosen = categorize_endpoints(endpoints, port, node.name, node.zone)
    return ServicePlan(
        name,
        port,
        chosen,
        frontends,
        internal=_traffic(chosen, local_only=port.internal_policy_local),
        external=_traffic(chosen, local_only=port.external_policy_local),
        allowed_sources=_allowed_sources(port, node),
    )


def _allowed_sources(port: ServicePort, node: NodeView) -> tuple[str, ...]:
    """Return who may dial the load balancer VIPs, () where everybody may (C.6, 9 and 14)."""
    ranges = port.load_balancer_source_ranges
    if not ranges:
        return ()
    node_allowed = node.node_ip is not None and any(addresses.contains(cidr, node.node_ip) for cidr in ranges)
    # A node that dials a VIP may be given that VIP as its own address.
    own = tuple(addresses.as_network(vip) for vip in port.load_balancer_vips) if node_allowed else ()
    return addresses.collapse((*ranges, *own))


def _traffic(chosen: CategorizedEndpoints, *, local_only: bool) -> TrafficAction:
    if not chosen.has_any_endpoints:
        return TrafficAction.REJECT
    if not local_only:
        return TrafficAction.CLUSTER
    return TrafficAction.LOCAL if chosen.local else TrafficAction.DROP
