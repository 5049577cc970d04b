"""Checks that clients reach exactly the endpoints that an explanation calls used."""

from ipaddress import ip_address, ip_network

from knft.explain.explanation import ExplainedFrontend, ExplainedPort
from knft.explain.outcomes import ClientOutcome

_TRAFFIC = {
    "outside": ("from outside",),
    "pod": ("from pods and this node",),
    "any": ("from any host",),
    "node": ("from pods and this node", "from this node"),
}


def check_used_endpoints(port: ExplainedPort, frontend: ExplainedFrontend) -> None:
    """The endpoints that each kind of client reaches are those that its traffic uses, and no others."""
    for outcome in frontend.outcomes:
        if frontend.kind == "a load balancer IP" and _is_outside(outcome, port.source_ranges):
            assert (outcome.fate, outcome.endpoints) == ("dropped", ()), (frontend.what, outcome)
            continue
        external = ("external frontends", *(f"external frontends {each}" for each in _TRAFFIC[outcome.client]))
        kinds = ("the cluster IP",) if frontend.kind == "the cluster IP" else external
        used = {each.endpoint for each in port.endpoints for use in each.uses if use.traffic in kinds and use.is_used}
        assert set(outcome.endpoints) == used, (frontend.what, outcome, port)


def _is_outside(outcome: ClientOutcome, allowed: tuple[str, ...]) -> bool:
    """Tell whether source ranges exclude the clients of an outcome: all of them are inside or all are outside."""
    if not allowed:
        return False
    first = ip_address(outcome.sources[0].partition("-")[0])
    return not any(first in ip_network(each) for each in allowed)
