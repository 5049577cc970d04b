"""Formats an explanation as text: the conclusion first, then each Service port."""

from collections.abc import Iterator

from knft.cli.text_layout import Layout
from knft.counts import format_number
from knft.explain.explanation import ExplainedEndpoint, ExplainedFrontend, ExplainedPort, Explanation
from knft.explain.outcomes import ClientOutcome
from knft.model.annotations import MAGLEV, SOURCE_HASH

_CLIENTS = {"outside": "from outside", "pod": "from pods", "any": "from any host", "node": "from this node"}
_COLUMNS = ("address", "pod", "node", "zone", "state", "clients", "connections")
_INDENT = 2


def format_explanation(found: Explanation, width: int | None, *, colours: bool = False) -> str:
    """Return the explanation as lines, folded at ``width``; None: not folded."""
    layout = Layout(width, colours=colours)
    layout.paragraph("; ".join(each.text for each in found.conclusion), style="bold")
    layout.blank()
    layout.pairs(_header(found), styles={"warning": "yellow"})
    if found.outcomes:
        layout.blank()
        layout.paragraph(f"a new connection to {found.what}")
        layout.pairs(_outcomes(found.outcomes), _INDENT)
    for port in found.ports:
        layout.blank()
        _add_port(layout, port)
    return layout.text()


def _header(found: Explanation) -> Iterator[tuple[str, str]]:
    zone = f" in zone {found.zone}" if found.zone else ""
    yield "source", found.source + (f", on node {found.node}{zone}" if found.node else "")
    for warning in found.warnings:
        yield "warning", warning
    if found.kernel:
        yield "kernel", "; ".join(each.text for each in found.kernel)
    if found.sync:
        yield "sync", "; ".join(each.text for each in found.sync)


def _add_port(layout: Layout, port: ExplainedPort) -> None:
    layout.paragraph(f"Service port {port.port} ({port.protocol}, {port.family})", style="bold")
    layout.pairs(_facts(port), _INDENT)
    layout.paragraph("frontends", _INDENT)
    layout.pairs(((each.what, _frontend(each)) for each in port.frontends), 2 * _INDENT)
    _add_endpoints(layout, port)
    _add_clients(layout, port)
    for note in port.notes:
        layout.paragraph(f"note: {note.text}", _INDENT)


_BALANCING = {
    MAGLEV: "maglev: by the hash of the client's address and port",
    SOURCE_HASH: "source-hash: by the hash of the client's address",
}


def _facts(port: ExplainedPort) -> Iterator[tuple[str, str]]:
    yield "summary", "; ".join(dict.fromkeys(each.text for each in (*port.problems, port.conclusion)))
    if port.internal_traffic_policy:
        external = f", external {port.external_traffic_policy}" if port.external_traffic_policy else ""
        yield "policy", f"internal {port.internal_traffic_policy}{external}"
    if port.load_balancing in _BALANCING:
        yield "load balancing", _BALANCING[port.load_balancing]
    yield "affinity", _affinity(port)
    if port.connections is not None:
        yield "connections", f"conntrack entries: {format_number(port.connections)}"
    if port.source_ranges:
        yield "source ranges", f"of load balancer IPs: {', '.join(port.source_ranges)}"


def _affinity(port: ExplainedPort) -> str:
    if port.affinity_seconds is None:
        return "none"
    if port.clients is None:
        return f"ClientIP, {port.affinity_seconds} s"
    more = " or more: only the first ones of the node were counted" if port.has_more_clients else ""
    return f"ClientIP, {port.affinity_seconds} s; affinity entries: {format_number(port.clients)}{more}"


def _frontend(frontend: ExplainedFrontend) -> str:
    place = f" at {frontend.at}" if frontend.at and frontend.what.startswith(":") else ""
    return "; ".join([f"{frontend.kind}{place}", *(each.text for each in frontend.claims)])


def _add_endpoints(layout: Layout, port: ExplainedPort) -> None:
    more = f", and {port.other_endpoints} more" if port.other_endpoints else ""
    if not port.endpoints:
        layout.paragraph(f"endpoints: none{more}", _INDENT)
        return
    layout.paragraph(f"endpoints{more}", _INDENT)
    rows = [
        (each.endpoint, each.pod, each.node, each.zone, each.state, *map(_number, (each.clients, each.connections)))
        for each in port.endpoints
    ]
    layout.table(_COLUMNS, rows, [_use(each) for each in port.endpoints], 2 * _INDENT)


def _number(count: int | None) -> str:
    return "" if count is None else format_number(count)


def _use(endpoint: ExplainedEndpoint) -> str:
    """Return whether an endpoint is used and why, for each kind of traffic if they differ."""
    traffic: dict[str, list[str]] = {}
    for use in endpoint.uses:
        traffic.setdefault(use.reason.text, []).append(use.traffic)
    if len(traffic) == 1:
        return next(iter(traffic))
    return "; ".join(f"{' and '.join(kinds)}: {reason}" for reason, kinds in traffic.items())


def _add_clients(layout: Layout, port: ExplainedPort) -> None:
    """Add the outcomes, once for all frontends with the same ones."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for frontend in port.frontends:
        if frontend.outcomes:
            alike.setdefault(tuple(_outcomes(frontend.outcomes)), []).append(frontend.what)
    for outcomes, frontends in alike.items():
        layout.paragraph(f"a new connection to {' or '.join(frontends)}", _INDENT)
        layout.pairs(outcomes, 2 * _INDENT)


def _outcomes(outcomes: tuple[ClientOutcome, ...]) -> Iterator[tuple[str, str]]:
    for each in outcomes:
        name = _CLIENTS[each.client]
        yield f"{name}, {each.which}" if each.which else name, each.text
