"""Formats a trace as text: the packet, the rules that it hits, and its outcome."""

from collections.abc import Iterator, Sequence

from knft.interpret.trace import Alternative, Trace, TracedOutcome, TracedRule
from knft.present.formatting import escape_invisible

_FATES = {
    "delivered": "is delivered",
    "rejected": "is rejected",
    "dropped": "is dropped",
    "undecided": "cannot be decided",
}


def format_trace(trace: Trace) -> str:
    """Return the trace as lines."""
    return "\n".join(line.rstrip() for line in _lines(trace)) + "\n"


def _lines(trace: Trace) -> Iterator[str]:
    yield from _header(trace)
    for way in trace.ways:
        yield ""
        if way.when:
            yield f"Where {escape_invisible(' and '.join(way.when))}:"
            yield ""
        yield from _way(way)


def _header(trace: Trace) -> Iterator[str]:
    sender = "a process of the node" if trace.sender == "node" else "from another host or a pod"
    interface = f", in by {escape_invisible(trace.interface)}" if trace.interface else ""
    yield f"packet   {trace.source} → {trace.destination} ({trace.family}, {sender}{interface}), opens a connection"
    yield f"rules    {escape_invisible(trace.rule_set)}"
    yield f"service  {escape_invisible(trace.service) if trace.service else 'no Service has this frontend'}"
    if trace.client != "new":
        yield f"client   {trace.client}"
    for remark in trace.remarks:
        yield f"warning  {escape_invisible(remark)}"


def _way(way: Alternative) -> Iterator[str]:
    if way.rules:
        yield "The packet hits"
        yield from _rules(way.rules, "  ")
    else:
        yield "The packet hits no rule with an effect."
    yield ""
    for end in way.ends:
        yield _end(end)
        yield from _rules(end.rules, "      ")
    if way.then:
        yield ""
        yield "Then, in all cases, it hits"
        yield from _rules(way.then, "  ")


def _end(end: TracedOutcome) -> str:
    often = "" if end.share == "1" else f"{end.share} ({end.percent:g} %) "
    why = f": {escape_invisible(end.why)}" if end.why else ""
    if end.fate != "delivered":
        return f"{often}{_FATES[end.fate]}{why}"
    said = f"reaches {end.endpoint}" if end.endpoint else "continues to its destination, not translated"
    if end.source != "kept":
        kind = {"masqueraded": "masqueraded", "frontend": "with the frontend's address as source"}
        said += f", {kind.get(end.source, f'with source {end.source}')}"
    else:
        said += ", source kept" if end.endpoint else ""
    if end.seconds is not None:
        said += f", session affinity for {end.seconds} s" + (";" if why else "")
    return f"{often}{said}{why}"


def _rules(rules: Sequence[TracedRule], indent: str) -> Iterator[str]:
    for met in rules:
        rule = f"line {met.line}: {met.rule}" if met.line else met.rule
        actions = escape_invisible(", ".join(met.does) or "matches")
        yield f"{indent}{escape_invisible(met.chain)}: {actions}   [{escape_invisible(rule)}]"
