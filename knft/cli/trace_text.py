"""Formats a trace as text: the packet, the rules that it hits, and its outcome."""

from collections.abc import Iterator, Sequence

from knft.interpret.trace import Trace, TracedCase, TracedOutcome, TracedRule
from knft.present.formatting import escape_invisible

_DISPOSITION_TEXTS = {
    "delivered": "is delivered",
    "rejected": "is rejected",
    "dropped": "is dropped",
    "undecided": "is undecided",
}


def format_trace(trace: Trace) -> str:
    """Return the trace as lines."""
    return "\n".join(line.rstrip() for line in _lines(trace)) + "\n"


def _lines(trace: Trace) -> Iterator[str]:
    yield from _header(trace)
    for alternative in trace.ways:
        yield ""
        if alternative.when:
            yield f"If {escape_invisible(' and '.join(alternative.when))}:"
            yield ""
        yield from _case(alternative)


def _header(trace: Trace) -> Iterator[str]:
    sender = "a process of the node" if trace.sender == "node" else "from another host or a pod"
    interface = f", input interface {escape_invisible(trace.interface)}" if trace.interface else ""
    yield f"packet   {trace.source} → {trace.destination} ({trace.family}, {sender}{interface}), opens a connection"
    yield f"rules    {escape_invisible(trace.rule_set)}"
    yield f"service  {escape_invisible(trace.service) if trace.service else 'no Service has this frontend'}"
    if trace.client != "new":
        yield f"client   {trace.client}"
    for warning in trace.remarks:
        yield f"warning  {escape_invisible(warning)}"


def _case(alternative: TracedCase) -> Iterator[str]:
    if alternative.rules:
        yield "The packet hits"
        yield from _rules(alternative.rules, "  ")
    else:
        yield "No rule acts on the packet."
    yield ""
    for end in alternative.ends:
        yield _outcome(end)
        yield from _rules(end.rules, "      ")
    if alternative.then:
        yield ""
        yield "After that, whatever the outcome, the packet hits"
        yield from _rules(alternative.then, "  ")


def _outcome(outcome: TracedOutcome) -> str:
    share = "" if outcome.share == "1" else f"{outcome.share} ({outcome.percent:g} %) "
    reason = f": {escape_invisible(outcome.why)}" if outcome.why else ""
    if outcome.fate != "delivered":
        return f"{share}{_DISPOSITION_TEXTS[outcome.fate]}{reason}"
    text = f"reaches {outcome.endpoint}" if outcome.endpoint else "is delivered, not translated"
    if outcome.source != "kept":
        kind = {"masqueraded": "masqueraded", "frontend": "with the frontend's address as source"}
        text += f", {kind.get(outcome.source, f'with source {outcome.source}')}"
    else:
        text += ", source kept" if outcome.endpoint else ""
    if outcome.seconds is not None:
        text += f", session affinity for {outcome.seconds} s" + (";" if reason else "")
    return f"{share}{text}{reason}"


def _rules(rules: Sequence[TracedRule], indent: str) -> Iterator[str]:
    for hit in rules:
        rule = f"line {hit.line}: {hit.rule}" if hit.line else hit.rule
        actions = escape_invisible(", ".join(hit.does) or "matches")
        yield f"{indent}{escape_invisible(hit.chain)}: {actions}   [{escape_invisible(rule)}]"
