"""Formats the answer to ``knft history`` as text: the time, content and cause of each change and failure."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from knft.cli.text_layout import format_seconds, wrapped
from knft.control.messages import (
    Cause,
    EndpointChange,
    Entry,
    FirstSync,
    History,
    ServerOutage,
    SyncFailure,
    TableChange,
)
from knft.counts import format_count

_INDENT = "    "


class Selection(Struct, frozen=True):
    """Which changes to print: of a Service (``namespace/name``), of an endpoint, since a time; "" and 0 select all.

    ``port`` is the name or number of a port, None for all; ``port_names`` are the names of the ports with that number.
    ``endpoint`` is an address, or an address and a port as in the answer. ``since_text`` is the time in words.
    """

    service: str = ""
    port: str | None = None
    port_names: tuple[str, ...] = ()
    endpoint: str = ""
    since: float = 0.0
    since_text: str = ""


def format_history(history: History, selection: Selection, width: int | None, unknown: Sequence[str] = ()) -> str:
    """Return the lines of a history, at most ``width`` columns wide; that of an endpoint begins with a conclusion.

    ``unknown`` are the sentences about a selected Service that the running knft does not have.
    """
    # An unknown port may have had changes under its name.
    lines = [*(() if unknown and selection.port else _lines(history, selection)), *unknown]
    return "".join(
        f"{folded}\n" for line in lines for folded in wrapped(_indent(line), line.lstrip(), width, f"{_indent(line)}  ")
    )


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _lines(history: History, selection: Selection) -> Iterator[str]:
    if history.node:
        yield f"node {history.node}"
    if history.dropped:
        yield f"{format_count(history.dropped, 'older change')} dropped: knft keeps the last ones in bounded memory"
    if not any(isinstance(entry, EndpointChange) for entry in history.entries) and (
        selection.service or not history.entries
    ):
        yield _no_changes(selection, has_dropped=history.dropped > 0)
    elif selection.endpoint:
        yield from _conclusions(history, selection.endpoint)
    for entry in history.entries:
        yield from _entry(entry)


def _no_changes(selection: Selection, *, has_dropped: bool) -> str:
    endpoint = f" of endpoint {selection.endpoint}" if selection.endpoint else ""
    since = f" {selection.since_text}" if selection.since_text else ""
    if selection.service:
        port = f" port {selection.service}:{selection.port}" if selection.port else f" {selection.service}"
        return f"knft has no changes of Service{port}{endpoint}{since}"
    return f"no such change{endpoint}{since or ('' if has_dropped else ' since the start of knft')}"


def _conclusions(history: History, endpoint: str) -> Iterator[str]:
    """Yield what happened last to an endpoint, for each Service port."""
    changes = [change for change in history.entries if isinstance(change, EndpointChange)]
    of_endpoint = [change for change in changes if names_endpoint(change, endpoint)]
    last = {(change.service, change.port, change.protocol, change.family): change for change in of_endpoint}
    for change in last.values():
        verb = "left" if any(_is_endpoint(key, endpoint) for key in change.lost) else "joined"
        yield f"{endpoint} {verb} {_port(change)} at {_time(change.in_force)}{_delay(change, verb)}"
    others = format_count(len(changes) - len(of_endpoint), "change")
    if len(changes) > len(of_endpoint):
        yield f"{endpoint} may be among the endpoints that are not listed in {others}, printed below"
    yield ""


def names_endpoint(change: EndpointChange, endpoint: str) -> bool:
    """Return whether a change lists an endpoint."""
    return any(_is_endpoint(key, endpoint) for key in (*change.gained, *change.lost))


def _is_endpoint(key: str, endpoint: str) -> bool:
    """Return whether ``address:port`` is an endpoint, which may be given without a port."""
    return key == endpoint or key.rpartition(":")[0].removeprefix("[").removesuffix("]") == endpoint


def _delay(change: EndpointChange, verb: str) -> str:
    if change.seconds is None:
        return ""
    seconds = format_seconds(change.seconds)
    if verb == "left":
        return f"; new connections still reached it for {seconds} after the event had arrived"
    return f"; new connections reach it since then, {seconds} after the event had arrived"


def _entry(entry: Entry) -> Iterator[str]:
    match entry:
        case FirstSync():
            elements = f"{entry.elements_added} elements added, {entry.elements_removed} removed"
            ports = format_count(entry.service_ports, "Service port")
            yield f"{_time(entry.in_force)}  {entry.family}: first sync, {ports}: {elements}"
        case TableChange():
            yield f"{_time(entry.at)}  {entry.family}: {entry.description}"
            repaired = f"knft repaired the table at {_clock_time(entry.repaired)}" if entry.repaired is not None else ""
            yield f"{_INDENT}{repaired or 'knft has not repaired the table yet'}"
        case SyncFailure():
            yield f"{_time(entry.began)}  {entry.family}: sync failed: {entry.error}"
            yield f"{_INDENT}{_end_of_failure(entry)}"
        case ServerOutage():
            yield f"{_time(entry.began)}  cannot watch {entry.resource or 'the API server'}: {entry.problem}"
            yield f"{_INDENT}{_end_of_outage(entry)}"
        case EndpointChange():
            yield f"{_time(entry.in_force)}  {_port(entry)}: {_endpoints(entry)}"
            yield f"{_INDENT}{_cause(entry.cause, entry)}"


def _end_of_failure(failure: SyncFailure) -> str:
    syncs = format_count(failure.syncs, "failed sync")
    last = f"; the last one: {failure.last_error}" if failure.last_error else ""
    if failure.ended is None:
        return f"{syncs} so far{last}; knft retries"
    lasted = format_seconds(failure.ended - failure.began)
    return f"{syncs}{last}; syncs succeed again since {_clock_time(failure.ended)}, {lasted} later"


def _end_of_outage(outage: ServerOutage) -> str:
    if outage.ended is None:
        return "not watched again yet; knft retries, and the rules stay as they are"
    return f"watched again since {_clock_time(outage.ended)}, {format_seconds(outage.ended - outage.began)} later"


def _port(change: EndpointChange) -> str:
    port = f":{change.port}" if change.port else ""
    return f"{change.service}{port} ({change.protocol}, {change.family})"


def _endpoints(change: EndpointChange) -> str:
    parts = (
        ("lost", change.lost, change.lost_not_listed),
        ("gained", change.gained, change.gained_not_listed),
    )
    return "; ".join(f"{verb} {_listed(listed, more)}" for verb, listed, more in parts if listed or more)


def _listed(endpoints: Sequence[str], more: int) -> str:
    if not more:
        return ", ".join(endpoints)
    if not endpoints:
        return format_count(more, "endpoint")
    return f"{', '.join(endpoints)} and {format_count(more, 'more endpoint')}"


def _cause(cause: Cause | None, change: EndpointChange) -> str:
    if cause is None or change.seconds is None:
        return "not caused by an event of this Service"
    version = f" at resourceVersion {cause.resource_version}" if cause.resource_version else ""
    deleted = " was deleted" if cause.is_deleted else " changed"
    seconds = format_seconds(change.seconds)
    effect = (
        f"new connections still reached lost endpoints for {seconds}" if change.lost else f"in force {seconds} later"
    )
    triggered = f"; last-change-trigger-time {cause.triggered}" if cause.triggered else ""
    return f"{cause.kind} {cause.name}{deleted}{version}, received {_clock_time(cause.received)}; {effect}{triggered}"


def _time(unix_seconds: float) -> str:
    return f"{_moment(unix_seconds):%Y-%m-%d} {_clock_time(unix_seconds)} UTC"


def _clock_time(unix_seconds: float) -> str:
    moment = _moment(unix_seconds)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}"


def _moment(unix_seconds: float) -> datetime:
    return datetime.fromtimestamp(unix_seconds, UTC)
