"""Compares the two halves of an explanation: the endpoints that are used, and those that packets reach."""

from knft.explain.explanation import ExplainedFrontend, ExplainedPort

_TRAFFIC = {
    "outside": ("from outside",),
    "pod": ("from pods and this node",),
    "any": ("from any host",),
    "node": ("from pods and this node", "from this node"),
}


def check_used_endpoints(port: ExplainedPort, frontend: ExplainedFrontend) -> None:
    """The endpoints that each kind of client reaches are those that its traffic uses, and no others."""
    for outcome in frontend.outcomes:
        if outcome.fate == "dropped" and not outcome.endpoints and port.source_ranges:
            continue  # The client is not in the source ranges.
        external = ("external frontends", *(f"external frontends {each}" for each in _TRAFFIC[outcome.client]))
        kinds = ("the cluster IP",) if frontend.kind == "the cluster IP" else external
        used = {each.endpoint for each in port.endpoints for use in each.uses if use.traffic in kinds and use.is_used}
        assert set(outcome.endpoints) == used, (frontend.what, outcome, port)
