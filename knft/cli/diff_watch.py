"""``knft diff --live --watch``: prints a line, or a JSON object, for each new result of the comparison."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

import click
import msgspec
from msgspec import Struct

from knft.app.signals import stop_on_signals
from knft.comparison.live import LiveSides, ManifestReader
from knft.comparison.watch import WatchResult, watch_results
from knft.config import Config
from knft.kernel.host_changes import HostChangeMonitor
from knft.kernel.probe import require_privilege
from knft.present.formatting import escape_invisible


class _Line(Struct, frozen=True):
    """A result with its time, as -o json prints it."""

    time: str
    result: WatchResult


def watch_live(paths: tuple[str, ...], config: Config | None, read_manifests: ManifestReader, *, as_json: bool) -> None:
    """Compare and print until SIGTERM or SIGINT; raise KnftError if the first read of flags or manifests fails."""
    require_privilege()
    with HostChangeMonitor() as changes:
        stop = stop_on_signals(changes.wake)
        live = LiveSides(config, read_manifests)
        with closing(watch_results(live, paths, changes, stop)) as results:
            for result in results:
                _print(result, as_json=as_json)


def _print(result: WatchResult, *, as_json: bool) -> None:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    click.echo(msgspec.json.encode(_Line(now, result)) if as_json else "\n".join(_lines(now, result)))


def _lines(now: str, result: WatchResult) -> Iterator[str]:
    if result.state == "unreadable":
        yield f"{now} cannot compare: {escape_invisible(result.error)}"
        return
    sides = f"{escape_invisible(result.left_name)} and {escape_invisible(result.right_name)}"
    if result.state == "nothing":
        yield f"{now} nothing was compared in {sides}: {escape_invisible(result.error)}"
    elif result.state == "equal":
        expected = f", except for expected differences ({result.expected} kinds of packets)" if result.expected else ""
        yield f"{now} equal: packets have the same outcome in {sides}{expected}"
    else:
        yield f"{now} different: some packets have different outcomes in {sides}"
    for difference in result.differences:
        service = escape_invisible(difference.service) or "addresses of no Service"
        yield f"  {difference.family} {service}, {difference.cause}: {escape_invisible(difference.description)}"
    for warning in result.warnings:
        yield f"  warning: {escape_invisible(warning)}"
