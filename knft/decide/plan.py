"""The plan for one Service port (C.6, 1 to 5)."""

from knft.decide.endpoints import Endpoints, categorize_endpoints
from knft.model.names import ServicePortName
from knft.model.node import NodeView
from knft.model.plan import CategorizedEndpoints, Frontend, ServicePlan, Traffic
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
    )


def _traffic(chosen: CategorizedEndpoints, *, local_only: bool) -> Traffic:
    if not chosen.has_any:
        return Traffic.REJECT
    if not local_only:
        return Traffic.CLUSTER
    return Traffic.LOCAL if chosen.local else Traffic.DROP
