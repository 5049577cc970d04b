"""Frontends in the table: which maps they stand in, and under which keys."""

from knft.model.plan import Frontend, FrontendKind, ServicePlan, Traffic
from knft.nft.expressions import Drop, Goto
from knft.nft.objects import Key
from knft.render import names


def frontend_key(frontend: Frontend) -> Key:
    """Return a frontend as the key of the maps of verdicts."""
    protocol = names.NFT_PROTOCOLS[frontend.protocol]
    if frontend.address is None:
        return (protocol, frontend.port)
    return (frontend.address, protocol, frontend.port)


def array_prefix(frontend: Frontend) -> Key:
    """Return a frontend as the beginning of its keys in an endpoint map."""
    return (frontend.port,) if frontend.address is None else (frontend.address, frontend.port)


def service_element(frontend: Frontend) -> tuple[str, Key]:
    """Return the element that leads a frontend's packets to a chain."""
    return (names.SERVICE_NODEPORTS if frontend.address is None else names.SERVICE_IPS, frontend_key(frontend))


def no_endpoint_element(frontend: Frontend) -> tuple[str, Key]:
    """Return the element that says what becomes of a frontend's packets that no endpoint took."""
    verdicts = names.NO_ENDPOINT_NODEPORTS if frontend.address is None else names.NO_ENDPOINT_SERVICES
    return (verdicts, frontend_key(frontend))


def is_internal(frontend: Frontend) -> bool:
    """Tell whether the internal traffic policy rules a frontend; the external one rules all others."""
    return frontend.kind is FrontendKind.CLUSTER_IP


def traffic(plan: ServicePlan, frontend: Frontend) -> Traffic:
    """Return what becomes of the traffic to a frontend."""
    return plan.internal if is_internal(frontend) else plan.external


def filter_verdict(found: Traffic) -> Goto | Drop | None:
    """Return what becomes of packets that no endpoint took, None where there is always one (C.6, 5)."""
    match found:
        case Traffic.REJECT:
            return Goto(names.REJECT_CHAIN)
        case Traffic.DROP:
            return Drop()
        case _:
            return None
