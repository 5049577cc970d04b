"""The plan for one Service port (docs/behaviour/nftables.md#service-ports)."""

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
    """Return the plan for a Service port that owns ``frontends``."""
    chosen = categorize_endpoints(endpoints, port, node.name, node.zone)
    return ServicePlan(
        name,
        port,
        chosen,
        frontends,
        internal=_traffic_action(chosen, local_only=port.internal_policy_local),
        external=_traffic_action(chosen, local_only=port.external_policy_local),
        allowed_sources=_allowed_sources(port, node),
    )


def _allowed_sources(port: ServicePort, node: NodeView) -> tuple[str, ...]:
    """Return the source ranges that may connect to the load balancer IPs, () for all sources."""
    ranges = port.load_balancer_source_ranges
    if not ranges:
        return ()
    node_allowed = node.node_ip is not None and any(addresses.contains(cidr, node.node_ip) for cidr in ranges)
    # If the node itself connects to a VIP, the packet's source address may be that VIP.
    own = tuple(addresses.as_network(vip) for vip in port.load_balancer_vips) if node_allowed else ()
    return addresses.collapse((*ranges, *own))


def _traffic_action(chosen: CategorizedEndpoints, *, local_only: bool) -> TrafficAction:
    if not chosen.has_any_endpoints:
        return TrafficAction.REJECT
    if not local_only:
        return TrafficAction.CLUSTER
    return TrafficAction.LOCAL if chosen.local else TrafficAction.DROP
