"""``knft history``: asks the running knft for its last changes, selects some, and prints them."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import click
import msgspec
from msgspec import Struct, structs

from knft.cli.columns import output_width
from knft.cli.history_text import format_history, is_endpoint
from knft.control.client import ask, decode
from knft.control.messages import HISTORY_PATH, EndpointChange, Entry, History, entry_time
from knft.durations import parse_unsigned
from knft.errors import UsageError
from knft.model.addresses import parse_address
from knft.model.endpoint import endpoint_key


class Selection(Struct, frozen=True):
    """Which changes to print: of a Service (``namespace/name``), of an endpoint, since a time; "" and 0 select all.

    ``endpoint`` is an address, or an address and a port as in the answer.
    """

    service: str = ""
    endpoint: str = ""
    since: float = 0.0


def history(service: str | None, endpoint: str | None, since: str | None, output: str) -> None:
    """Print the changes as "text" or "json"; raise ControlError if no daemon answers."""
    selection = Selection(
        service_name(service) if service else "",
        endpoint_name(endpoint) if endpoint else "",
        since_time(since, time.time()) if since else 0.0,
    )
    found = decode(ask(HISTORY_PATH), History)
    selected = structs.replace(found, entries=tuple(filter(selector(selection), found.entries)))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(selected), indent=2).decode())
        return
    click.echo(format_history(selected, selection.endpoint, output_width()), nl=False)


def service_name(text: str) -> str:
    """Return ``namespace/name``; the namespace is ``default`` if none is given. Raises UsageError."""
    namespace, slash, name = text.rpartition("/")
    if not name or (slash and not namespace) or "/" in namespace:
        msg = f"{text!r} is not a Service: write NAMESPACE/NAME, or NAME for a Service in namespace default"
        raise UsageError(msg)
    return f"{namespace or 'default'}/{name}"


def endpoint_name(text: str) -> str:
    """Return a canonical address, or ``address:port``; raise UsageError."""
    whole = parse_address(text)
    if whole is not None:
        return whole[1]
    host, _, port = text.rpartition(":")
    parsed = parse_address(host.removeprefix("[").removesuffix("]"))
    if parsed is None or not (port.isascii() and port.isdigit()):
        msg = f"--endpoint: {text!r} is not an address such as 10.244.1.20, 10.244.1.20:8080 or [fd00::20]:8080"
        raise UsageError(msg)
    return endpoint_key(parsed[1], int(port))


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


def selector(selection: Selection) -> Callable[[Entry], bool]:
    """Return whether to print an entry. Changes of a table may concern any Service, but name no endpoint."""

    def is_selected(entry: Entry) -> bool:
        if entry_time(entry) < selection.since:
            return False
        if not isinstance(entry, EndpointChange):
            return not selection.endpoint
        if selection.service and entry.service != selection.service:
            return False
        keys = (*entry.gained, *entry.lost)
        return not selection.endpoint or any(is_endpoint(key, selection.endpoint) for key in keys)

    return is_selected
