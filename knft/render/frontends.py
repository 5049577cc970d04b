"""The elements of frontends: which maps contain them, and with which keys."""

from typing import Literal

from knft.model.endpoint import Endpoint
from knft.model.plan import Frontend, FrontendKind, ServicePlan, TrafficAction
from knft.nft.expressions import Drop, Goto
from knft.nft.objects import Key
from knft.protocols import NFT_PROTOCOLS
from knft.render import names


def frontend_key(frontend: Frontend) -> Key:
    """Return a frontend's key in the verdict maps."""
    protocol = NFT_PROTOCOLS[frontend.protocol]
    if frontend.address is None:
        return (protocol, frontend.port)
    return (frontend.address, protocol, frontend.port)


def array_prefix(frontend: Frontend) -> Key:
    """Return the beginning of a frontend's keys in an endpoint map."""
    return (frontend.port,) if frontend.address is None else (frontend.address, frontend.port)


def service_element(frontend: Frontend) -> tuple[str, Key]:
    """Return the element with the verdict that sends a frontend's packets to a chain."""
    return (names.SERVICE_NODEPORTS if frontend.address is None else names.SERVICE_IPS, frontend_key(frontend))


def no_endpoint_element(frontend: Frontend) -> tuple[str, Key]:
    """Return the element with the verdict for packets for which no endpoint exists."""
    verdicts = names.NO_ENDPOINT_NODEPORTS if frontend.address is None else names.NO_ENDPOINT_SERVICES
    return (verdicts, frontend_key(frontend))


def is_internal(frontend: Frontend) -> bool:
    """Return whether the internal traffic policy applies to a frontend, not the external one."""
    return frontend.kind is FrontendKind.CLUSTER_IP


def traffic_action(plan: ServicePlan, frontend: Frontend) -> TrafficAction:
    """Return how the traffic policy treats a frontend's traffic."""
    return plan.internal if is_internal(frontend) else plan.external


TrafficClass = Literal["cluster", "local"]
"""Whether traffic may go to the cluster endpoints, or only to those on this node."""

CLASS_NUMBERS: dict[TrafficClass, int] = {"cluster": 0, "local": 1}
"""The numbers of the classes in the keys of maps."""


def endpoints_of(plan: ServicePlan, traffic_class: TrafficClass) -> tuple[Endpoint, ...]:
    """Return the endpoints for one class of traffic."""
    return plan.endpoints.local if traffic_class == "local" else plan.endpoints.cluster


def traffic_classes(plan: ServicePlan, frontend: Frontend) -> tuple[TrafficClass, ...]:
    """Return the classes of a frontend's traffic: with external policy Local, pods and the node reach all endpoints."""
    is_external = not is_internal(frontend)
    match traffic_action(plan, frontend):
        case TrafficAction.CLUSTER:
            return ("cluster",)
        case TrafficAction.LOCAL:
            return ("cluster", "local") if is_external else ("local",)
        case TrafficAction.DROP:
            return ("cluster",) if is_external else ()
        case TrafficAction.REJECT:
            return ()


def filter_verdict(traffic: TrafficAction) -> Goto | Drop | None:
    """Return the verdict for packets for which no endpoint exists; None if there is always an endpoint.

    See docs/behaviour/nftables.md#service-ports.
    """
    match traffic:
        case TrafficAction.REJECT:
            return Goto(names.REJECT_CHAIN)
        case TrafficAction.DROP:
            return Drop()
        case TrafficAction.CLUSTER | TrafficAction.LOCAL:
            return None
