"""Formats a trace as text: the conclusion, the packet, the rules that it hits, and its outcome."""

from collections.abc import Iterator, Sequence

from knft.interpret.trace import Trace, TracedCase, TracedOutcome, TracedRule
from knft.present.formatting import escape_invisible
from knft.present.layout import Layout

_UNDECIDED = "the outcome is undecided"
_DISPOSITION_TEXTS = {"rejected": "is rejected", "dropped": "is dropped", "undecided": _UNDECIDED}
_COLOURS = {"delivered": "green", "rejected": "red", "dropped": "red", "undecided": "yellow"}
_STATE_TEXTS = {
    "new": "opens a connection",
    "established": "belongs to an established connection",
    "invalid": "has conntrack state INVALID",
}
_LABEL_ROOM = 9


def format_trace(trace: Trace, *, width: int | None = None, colours: bool = False) -> str:
    """Return the trace as text; lines wrap at ``width``, or never without one."""
    out = Layout(width, colours=colours)
    out.line(_conclusion(trace), f"bold {_worst_colour(trace)}")
    out.line()
    _print_header(out, trace)
    for alternative in trace.ways:
        out.line()
        if alternative.when:
            out.line(f"If {escape_invisible(' and '.join(alternative.when))}:", "bold")
            out.line()
        _print_case(out, alternative)
    return out.text


def _conclusion(trace: Trace) -> str:
    """Return what becomes of the packet, in one line."""
    conclusions = {_conclusion_of_case(case.ends) for case in trace.ways}
    if len(conclusions) == 1:
        conclusion = conclusions.pop()
        return conclusion if conclusion.startswith(_UNDECIDED) else f"the packet {conclusion}"
    return f"the outcome depends on properties of the packet that no flag gives: {len(trace.ways)} cases"


def _conclusion_of_case(ends: Sequence[TracedOutcome]) -> str:
    if len(ends) == 1:
        return _outcome(ends[0])
    endpoints = {end.endpoint for end in ends if end.endpoint}
    reached = f"reaches one of {len(endpoints)} endpoints" if len(endpoints) > 1 else f"reaches {''.join(endpoints)}"
    others = dict.fromkeys(_outcome_text(end) for end in ends if not end.endpoint)
    decided_first = sorted(others, key=lambda text: text.startswith(_UNDECIDED))
    return " or ".join([*([reached] if endpoints else []), *decided_first])


def _worst_colour(trace: Trace) -> str:
    colours = {_COLOURS[end.fate] for case in trace.ways for end in case.ends}
    return next(colour for colour in ("yellow", "red", "green") if colour in colours)


def _print_header(out: Layout, trace: Trace) -> None:
    for label, text in _header(trace):
        styles = ("yellow" if label == "warning" else "dim", "")
        out.labelled(label, escape_invisible(text), room=_LABEL_ROOM, styles=styles)


def _header(trace: Trace) -> Iterator[tuple[str, str]]:
    properties = [trace.family, "a process of the node" if trace.sender == "node" else "from another host or a pod"]
    if trace.source_port is not None:
        properties.append(f"source port {trace.source_port}")
    properties += [f"input interface {trace.interface}"] if trace.interface else []
    properties += [f"output interface {trace.output_interface}"] if trace.output_interface else []
    yield "packet", f"{trace.source} → {trace.destination} ({', '.join(properties)}), {_STATE_TEXTS[trace.state]}"
    yield "rules", trace.rule_set
    yield "service", trace.service or "no Service has this frontend"
    if trace.client != "new":
        yield "client", trace.client
    for warning in trace.remarks:
        yield "warning", warning


def _print_case(out: Layout, alternative: TracedCase) -> None:
    if alternative.rules:
        out.line("The packet hits")
        _print_rules(out, alternative.rules, 2)
    else:
        out.line("No rule acts on the packet.")
    out.line()
    for end in alternative.ends:
        out.line(_outcome(end), f"bold {_COLOURS[end.fate]}")
        _print_rules(out, end.rules, 6)
    if alternative.then:
        out.line()
        out.line("After that, whatever the outcome, the packet hits")
        _print_rules(out, alternative.then, 2)


def _outcome(outcome: TracedOutcome) -> str:
    colon = ":" if outcome.fate == "undecided" else ""
    share = "" if outcome.share == "1" else f"{outcome.share} ({outcome.percent:g} %){colon} "
    return f"{share}{_outcome_text(outcome)}"


def _outcome_text(outcome: TracedOutcome) -> str:
    reason = f": {escape_invisible(outcome.why)}" if outcome.why else ""
    if outcome.fate != "delivered":
        return f"{_DISPOSITION_TEXTS[outcome.fate]}{reason}"
    text = f"reaches {outcome.endpoint}" if outcome.endpoint else "is delivered, not translated"
    if outcome.source != "kept":
        kind = {"masqueraded": "masqueraded", "frontend": "with the frontend's address as source"}
        text += f", {kind.get(outcome.source, f'with source {outcome.source}')}"
    else:
        text += ", source kept" if outcome.endpoint else ""
    if outcome.seconds is not None:
        text += f", session affinity for {outcome.seconds} s"
    return f"{text}{reason}"


def _print_rules(out: Layout, rules: Sequence[TracedRule], indent: int) -> None:
    """Print a line for each rule, or its action and its text on lines of their own if the terminal is too narrow."""
    for hit in rules:
        rule = f"[{escape_invisible(f'line {hit.line}: {hit.rule}' if hit.line else hit.rule)}]"
        action = f"{escape_invisible(hit.chain)}: {escape_invisible(', '.join(hit.does) or 'matches')}"
        if out.has_room_for(f"{action}   {rule}", indent):
            out.line(f"{action}   {rule}", indent=indent)
        else:
            out.line(action, indent=indent)
            out.line(rule, "dim", indent=indent + 2)
