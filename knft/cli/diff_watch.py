"""``knft diff --live --watch``: prints the changes of each new result as text, or the whole result as a JSON object."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

import click
import msgspec
from msgspec import Struct

from knft.app.signals import stop_on_signals
from knft.cli.terminal import terminal_width, use_colours
from knft.cli.text_layout import fold
from knft.comparison.live import LiveSides, ManifestReader
from knft.comparison.watch import ReportedDifference, WatchResult, watch_results
from knft.config import Config
from knft.kernel.host_changes import HostChangeMonitor
from knft.kernel.probe import require_privilege
from knft.present.formatting import escape_invisible
from knft.present.layout import styled

_STYLES = {"equal": "bold green", "different": "bold red"}


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
            previous: WatchResult | None = None
            for result in results:
                now = datetime.now().astimezone().isoformat(timespec="seconds")
                _print(now, result, previous, as_json=as_json)
                previous = previous if result.state == "unreadable" else result


def _print(now: str, result: WatchResult, previous: WatchResult | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(_Line(now, result)))
    else:
        click.echo(format_result(now, result, previous, terminal_width(), colours=use_colours()), nl=False)


def format_result(
    now: str, result: WatchResult, previous: WatchResult | None, width: int | None, *, colours: bool = False
) -> str:
    """Return the text about a result, see ``result_lines``; ``colours`` are for its conclusion, the first line."""
    conclusion, *details = result_lines(now, result, previous)
    folded = fold((conclusion,), width)
    if colours:
        style = "bold yellow" if result.losing and result.state == "equal" else _STYLES.get(result.state, "bold yellow")
        folded = "".join(f"{styled(line, style)}\n" for line in folded.splitlines())
    return folded + fold(details, width)


def result_lines(now: str, result: WatchResult, previous: WatchResult | None) -> Iterator[str]:
    """Yield the lines about a result: only what has changed since ``previous``, the last that was comparable.

    Without ``previous``, or if it compared other sides, the result is complete.
    """
    if result.state == "unreadable":
        yield f"{now} cannot compare: {escape_invisible(result.error)}"
        return
    sides = f"{escape_invisible(result.left_name)} and {escape_invisible(result.right_name)}"
    is_first = previous is None or previous.left_name != result.left_name or previous.right_name != result.right_name
    before = WatchResult("equal") if previous is None or is_first else previous
    changes = list(_changes(before.differences, result.differences))
    loss = f"; some clients would no longer reach {escape_invisible(', '.join(result.losing))}" if result.losing else ""
    if result.state == "nothing":
        yield f"{now} nothing was compared in {sides}: {escape_invisible(result.error)}"
    elif result.state == "equal":
        expected = f", except for expected differences ({result.expected} kinds of packets)" if result.expected else ""
        yield f"{now} equal: packets have the same outcome in {sides}{expected}{loss}"
    elif is_first:
        yield f"{now} different: some packets have different outcomes in {sides}{loss}"
    else:
        yield f"{now} different: {_summary(changes)}; {len(result.differences)} in all{loss}"
    yield from (f"  {text}" if is_first else f"  {sign} {text}" for sign, text in changes)
    yield from (f"  warning: {escape_invisible(text)}" for text in result.warnings if text not in before.warnings)


_NEW, _GONE, _CHANGED = "+", "-", "~"
_NAMES = {_NEW: "new", _GONE: "gone", _CHANGED: "changed"}


def _summary(changes: list[tuple[str, str]]) -> str:
    counts = Counter(sign for sign, _ in changes)
    return (
        ", ".join(f"{counts[sign]} {name}" for sign, name in _NAMES.items() if counts[sign]) or "no difference changed"
    )


def _changes(
    before: tuple[ReportedDifference, ...], after: tuple[ReportedDifference, ...]
) -> Iterator[tuple[str, str]]:
    """Yield a sign and the text of each difference that is new, gone, or has another description."""
    gone = [item for item in before if item not in after]
    for item in after:
        if item in before:
            continue
        old = next((each for each in gone if _place(each) == _place(item)), None)
        if old is None:
            yield _NEW, _describe(item)
        else:
            gone.remove(old)
            yield _CHANGED, f"{_describe(item)} (before: {escape_invisible(old.description)})"
    yield from ((_GONE, _describe(item)) for item in gone)


def _place(difference: ReportedDifference) -> tuple[str, str, str]:
    return difference.family, difference.service, difference.cause


def _describe(difference: ReportedDifference) -> str:
    service = escape_invisible(difference.service) or "addresses of no Service"
    return f"{difference.family} {service}, {difference.cause}: {escape_invisible(difference.description)}"
