"""``knft history``: asks the running knft for its last changes, selects some, and prints them."""

import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime

import click
import msgspec
from msgspec import structs

from knft.cli.history_text import Selection, format_history, names_endpoint
from knft.cli.terminal import terminal_width
from knft.control.client import ask, decode
from knft.control.messages import (
    HISTORY_PATH,
    EndpointChange,
    Entry,
    FirstSync,
    History,
    ServerOutage,
    SyncFailure,
    entry_time,
)
from knft.durations import parse_unsigned
from knft.errors import UsageError
from knft.explain.missing import missing_service
from knft.explain.query import AddressQuery, ServiceQuery, parse_query
from knft.explain.sentences import Sentence, state
from knft.explain.words import listed, number_text
from knft.model.endpoint import endpoint_key
from knft.model.names import NamespacedName
from knft.model.objects import Service, ServicePortSpec

STATUS_FOUND, STATUS_NOT_FOUND = 0, 3


def history(service: str | None, endpoint: str | None, since: str | None, output: str) -> int:
    """Print the changes as "text" or "json", and return the exit status; raise ControlError if no daemon answers."""
    name, port = service_name(service) if service is not None else ("", None)
    selection = Selection(
        name,
        port,
        endpoint=endpoint_name(endpoint) if endpoint is not None else "",
        since=since_time(since, time.time()) if since is not None else 0.0,
        since_text=since_text(since) if since is not None else "",
    )
    found = decode(ask(HISTORY_PATH), History)
    unknown: tuple[str, ...] = ()
    if selection.service and not _has_changes(selection, found):
        selection, unknown = resolve(selection, found, _services())
    selected = structs.replace(found, entries=tuple(filter(selector(selection), found.entries)))
    if unknown:
        selected = structs.replace(selected, entries=())
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(selected), indent=2).decode())
    else:
        click.echo(format_history(selected, selection, terminal_width(), unknown), nl=False)
    return STATUS_NOT_FOUND if unknown else STATUS_FOUND


def _has_changes(selection: Selection, found: History) -> bool:
    """Return whether the selected Service, and the port of the selected name, have a change."""
    return any(
        entry.service == selection.service and selection.port in (None, entry.port)
        for entry in found.entries
        if isinstance(entry, EndpointChange)
    )


def _services() -> tuple[Service, ...]:
    from knft.control.object_reader import ObjectReader  # noqa: PLC0415 - few commands need the objects

    return ObjectReader().services()


def resolve(selection: Selection, found: History, services: Collection[Service]) -> tuple[Selection, tuple[str, ...]]:
    """Return the selection with the names of a port that is given by number, and sentences if the port is unknown."""
    name = NamespacedName(*selection.service.split("/"))
    service = next((each for each in services if each.key == name), None)
    if service is None:
        if not _has_changes(structs.replace(selection, port=None), found):
            return selection, unknown_service(name, {each.key for each in services})
        msg = f"the running knft no longer has Service {name}, so its port {selection.port!r} cannot be looked up"
        return selection, (msg,)
    if selection.port is None:
        return selection, ()
    ports = service.spec.ports or ()
    names = tuple(port.name for port in ports if selection.port in (port.name, str(port.port)))
    if names:
        return structs.replace(selection, port_names=names), ()
    if not ports:
        return selection, (state(Sentence.NO_PORTS, service=name).text,)
    only = listed(_port_text(port) for port in ports)
    return selection, (state(Sentence.NO_SUCH_PORT, service=name, port=repr(selection.port), found=only).text,)


def _port_text(port: ServicePortSpec) -> str:
    number = number_text(port.port, port.protocol)
    return f"{port.name!r} ({number})" if port.name else number


def unknown_service(name: NamespacedName, existing: Collection[NamespacedName]) -> tuple[str, ...]:
    """Return that the running knft does not have a Service, and similar names; nothing if it has the Service."""
    if name in existing:
        return ()
    return tuple(each.text for each in missing_service(name, existing, Sentence.UNKNOWN_SERVICE))


def service_name(text: str) -> tuple[str, str | None]:
    """Return ``namespace/name``, and the name of a port if there is one.

    The namespace is ``default`` if none is given. Raises UsageError.
    """
    with suppress(UsageError):
        query = parse_query(text)
        if isinstance(query, ServiceQuery):
            return str(query.service), query.port
    msg = f"{text!r} is not a Service: write NAMESPACE/NAME, or NAME in namespace default, and :PORT for one port"
    raise UsageError(msg)


def endpoint_name(text: str) -> str:
    """Return a canonical address, or ``address:port``; raise UsageError."""
    with suppress(UsageError):
        query = parse_query(text)
        if isinstance(query, AddressQuery) and "/" not in text:
            return endpoint_key(query.address, query.port) if query.port else query.address
    msg = f"--endpoint: {text!r} is not an address such as 10.244.1.20, 10.244.1.20:8080 or [fd00::20]:8080"
    raise UsageError(msg)


def since_time(text: str, now: float) -> float:
    """Return the time of a duration before ``now``, or of an RFC 3339 time, in seconds since 1970; raise UsageError."""
    nanoseconds = parse_unsigned(text)
    if nanoseconds is not None:
        return now - nanoseconds / 1e9
    try:
        time_of_day = datetime.fromisoformat(text)
    except ValueError:
        msg = f"--since: {text!r} is neither a duration such as 5m nor a time such as 2026-11-24T14:03:00Z"
        raise UsageError(msg) from None
    return (time_of_day if time_of_day.tzinfo is not None else time_of_day.replace(tzinfo=UTC)).timestamp()


def since_text(text: str) -> str:
    """Return a valid ``--since`` as part of a sentence."""
    return f"since {text}" if parse_unsigned(text) is None else f"in the last {text}"


def selector(selection: Selection) -> Callable[[Entry], bool]:
    """Return whether to print an entry.

    Changes of a table, failed syncs and outages may concern any Service, but name no endpoint. Failures and outages
    are selected if they had not ended before the selected time.

    The first sync concerns all Services, and says nothing about one of them.

    A change that does not list all of its endpoints may concern the one that is looked for.
    """

    def is_selected(entry: Entry) -> bool:
        if _end(entry) < selection.since or (selection.service and isinstance(entry, FirstSync)):
            return False
        if not isinstance(entry, EndpointChange):
            return not selection.endpoint
        if selection.service and entry.service != selection.service:
            return False
        if selection.port is not None and entry.port not in (selection.port_names or (selection.port,)):
            return False
        has_more = bool(entry.gained_not_listed or entry.lost_not_listed)
        return not selection.endpoint or has_more or names_endpoint(entry, selection.endpoint)

    return is_selected


def _end(entry: Entry) -> float:
    if isinstance(entry, SyncFailure | ServerOutage):
        return entry.ended if entry.ended is not None else math.inf
    return entry_time(entry)
