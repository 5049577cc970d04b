"""``knft diff``: compares the outcomes of packets with kube-proxy's rules and with knft's."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from knft import __version__
from knft.cli.capture_files import capture_from_options
from knft.cli.kube_proxy_options import kube_proxy_options
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.cli.terminal import terminal_width, use_colours
from knft.comparison.compare import compare
from knft.comparison.sides import KnftInput, Sides, captured_sides, rendered_sides
from knft.config import Config, parse_addresses
from knft.errors import UsageError
from knft.interpret.compare import formatting
from knft.interpret.compare.comparison import Progress
from knft.interpret.compare.report import Report, ReportMetadata, Result
from knft.model.objects import ObjectChange
from knft.proxy_mode import Mode

_STATUSES: dict[Result, int] = {"equal": 0, "different": 1, "undecided": 1, "nothing": 3}
"""The exit status for each result of a comparison; 2 is an error."""


def diff(*, output: str, live: bool, watch: bool, **options: Any) -> int:  # noqa: ANN401 - click's values
    """Compare both sides, print the report, and return the exit status."""
    _reject_contradictions(options, output, live=live, watch=watch)
    paths = options["paths"]
    if watch:
        from knft.cli.diff_watch import watch_live  # noqa: PLC0415 - threads and sockets that only this needs

        watch_live(paths, _live_config(options), lambda: read_manifests(paths), as_json=output == "json")
        return 0
    if live:
        from knft.comparison.live import LiveSides  # noqa: PLC0415 - netlink

        sides = LiveSides(_live_config(options), lambda: read_manifests(paths)).read()
    else:
        sides = sides_from_options(options)
    with _progress() as progress:
        report = compare(sides, progress)
    report.metadata = _metadata(options, sides)
    click.echo(_format(report, output), nl=False)
    return _STATUSES[report.result]


def _live_config(options: dict[str, Any]) -> Config | None:
    return config_from_options(options) if options["paths"] else None


def sides_from_options(options: dict[str, Any]) -> Sides:
    """Return the sides that the flags name; raise UsageError, SourceError or CaptureError."""
    if not options["paths"]:
        msg = "-f is required: name manifests to render knft's rules from, or compare the kernel's rules with --live"
        raise UsageError(msg)
    capture = capture_from_options(options)
    changes = read_manifests(options["paths"])
    if capture is None:
        if options["config"] is not None:
            msg = "--config requires --live or captured rules, such as --iptables-save: it has knft's settings only"
            raise UsageError(msg)
        return rendered_sides_from_options(Mode(options["against"]), changes, options)
    return captured_sides(capture, _knft_input(changes, options))


def rendered_sides_from_options(mode: Mode, changes: tuple[ObjectChange, ...], options: dict[str, Any]) -> Sides:
    """Return kube-proxy's rules in a mode, and knft's, for the same objects; raise UsageError."""
    return rendered_sides(_knft_input(changes, options), kube_proxy_options(mode, options))


def _knft_input(changes: tuple[ObjectChange, ...], options: dict[str, Any]) -> KnftInput:
    local_addresses = parse_addresses("--local-address", options["local_address"])
    return KnftInput(changes, config_from_options(options), local_addresses)


def _reject_contradictions(options: dict[str, Any], output: str, *, live: bool, watch: bool) -> None:
    captures = ("iptables_save", "ip6tables_save", "ipset_save", "ipvsadm_save", "nft_json")
    named = next((name for name in captures if options[name] is not None), None)
    if live and named is not None:
        msg = f"--{named.replace('_', '-')} cannot be used with --live, which reads this machine's rules"
        raise UsageError(msg)
    if watch and not live:
        msg = "--watch requires --live"
        raise UsageError(msg)
    if watch and output == "html":
        msg = "--watch cannot be used with -o html; leave -o out for text, or use -o json"
        raise UsageError(msg)
    if watch and "-" in options["paths"]:
        msg = "--watch cannot watch standard input; name files or directories with -f"
        raise UsageError(msg)


def _metadata(options: dict[str, Any], sides: Sides) -> ReportMetadata:
    """Return the node, the time, the command line and the input files of the comparison."""
    addresses = (
        formatting.format_address(version, first)
        for version, ranges in sides.node_addresses.items()
        for first, last in ranges
        if first == last
    )
    return ReportMetadata(
        node=options["node"] or "",
        addresses=tuple(address for address in addresses if address != "::1"),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=shlex.join(("knft", *sys.argv[1:])),
        version=__version__,
        right_files=tuple(options["paths"]),
    )


def _format(report: Report, output: str) -> str:
    from knft import present  # noqa: PLC0415 - loads rich or Jinja2

    if output == "table":
        return present.table(report, width=terminal_width(), colours=use_colours())
    return {"json": present.json, "html": present.html}[output](report)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _, __: None
        return
    with click.progressbar(length=1, label="comparing", file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield show
