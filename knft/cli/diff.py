"""``knft diff``: what would become of packets if knft took over from kube-proxy, or did from what a capture shows."""

import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from knft import __version__
from knft.cli.sides import Sides, rendered_sides, sides
from knft.errors import UsageError
from knft.interpret.compare import words
from knft.interpret.compare.classes import Classes
from knft.interpret.compare.comparison import Comparison, Progress
from knft.interpret.compare.edit import joined
from knft.interpret.compare.intent import Intended
from knft.interpret.compare.meant_of_ipvs import node_addresses
from knft.interpret.compare.report import About, FamilyReport, Report, summarise
from knft.interpret.compare.services import ServiceNames
from knft.interpret.constants import Constants
from knft.interpret.ranges import ranges
from knft.interpret.rules import IpVersion
from knft.takeover.names import Mode

__all__ = ["Sides", "compare", "diff", "rendered_sides"]

EQUAL, DIFFERENT = 0, 1


def diff(*, output: str, live: bool, watch: bool, **options: Any) -> int:  # noqa: ANN401 - click's values
    """Compare both sides, print the report, and return the exit status."""
    _refuse_contradictions(options, output, live=live, watch=watch)
    if watch:
        from knft.cli.watch import watch_live  # noqa: PLC0415 - threads and sockets that only this needs

        watch_live(options, as_json=output == "json")
        return EQUAL
    if live:
        from knft.cli.live import LiveSides  # noqa: PLC0415 - netlink

        found = LiveSides(options).now()
    else:
        found = sides(options)
    with _progress() as progress:
        report = compare(found, progress)
    report.about = _about(options, found)
    click.echo(_printed(report, output), nl=False)
    return EQUAL if report.is_equal else DIFFERENT


def _refuse_contradictions(options: dict[str, Any], output: str, *, live: bool, watch: bool) -> None:
    captures = ("iptables_save", "ip6tables_save", "ipset_save", "ipvsadm_save", "nft_json")
    named = next((name for name in captures if options[name] is not None), None)
    if live and named is not None:
        msg = f"--{named.replace('_', '-')}: --live captures this machine itself; leave one of the two out"
        raise UsageError(msg)
    if watch and not live:
        msg = "--watch: only what is in force on this machine changes; give --live too"
        raise UsageError(msg)
    if watch and output == "html":
        msg = "--watch: it prints lines as things change, as text or with -o json"
        raise UsageError(msg)
    if watch and "-" in options["paths"]:
        msg = "--watch: standard input is read once; name files or directories with -f"
        raise UsageError(msg)


def _about(options: dict[str, Any], found: Sides) -> About:
    """Return where a report is from, for those to whom it is shown later."""
    own = (
        words.address(version, first) for version, where in found.own.items() for first, last in where if first == last
    )
    return About(
        node=options["node"] or "",
        addresses=tuple(address for address in own if address != "::1"),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=shlex.join(("knft", *sys.argv[1:])),
        version=__version__,
        right=tuple(options["paths"]),
    )


_NOTICED = {
    "forwarding rules": "the host's own rules drop forwarded packets that kube-proxy accepts before: with knft, they "
    "themselves have to accept Service traffic",
    "health check ports": "the host's own rules drop packets to healthCheckNodePorts that kube-proxy accepts before: "
    "with knft, they themselves have to accept these",
}
"""What is meant, and what clients notice all the same where a host has rules of its own."""


def _remarks(found: Sides, families: Iterable[FamilyReport]) -> Iterator[str]:
    """Yield what whoever reads a report has to know beside it."""
    for version in found.knft.keys() - found.kube_proxy.keys():
        yield f"IPv{version} was not compared: there is no capture of it"
    groups = [group for family in families for group in family.groups if group.intent is not None]
    for reason, what in _NOTICED.items():
        classes = sum(group.classes for group in groups if reason in str(group.intent))
        if classes and found.foreign:
            yield f"{what} ({classes} classes)"


def _printed(report: Report, output: str) -> str:
    from knft import present  # noqa: PLC0415 - heavy

    return {"table": present.table, "json": present.json, "html": present.html}[output](report)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show how far a comparison is, to people alone."""
    if not sys.stderr.isatty():
        yield lambda _, __: None
        return
    with click.progressbar(length=1, label="comparing", file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield show


def compare(found: Sides, progress: Progress = lambda _, __: None) -> Report:
    """Return what differs between both sides."""
    begun = time.monotonic()
    families = [_compare_family(version, found, progress) for version in found.kube_proxy if version in found.knft]
    seconds = time.monotonic() - begun
    remarks = [*found.remarks, *_remarks(found, families)]
    return Report(found.name, found.knft_name, families, seconds=seconds, remarks=remarks)


def _compare_family(version: IpVersion, found: Sides, progress: Progress) -> FamilyReport:
    comparison, names = comparison_of(version, found)
    return summarise(version, comparison.counts, comparison.differences(progress), names)


def comparison_of(version: IpVersion, found: Sides) -> tuple[Comparison, ServiceNames]:
    """Return what goes through all differences of one family, and who is who."""
    left, right, own = found.kube_proxy[version], found.knft[version], found.own[version]
    if version in found.foreign:
        # What others have stays. Of base chains with one priority the youngest is first, and knft's would be.
        right = joined(right, found.foreign[version])
    is_ipvs = found.mode is Mode.IPVS
    if is_ipvs:
        own = ranges((*own, *node_addresses(left)))
    classes = Classes(version, Constants((left, right)), own, bound=left.bound if is_ipvs else None)
    comparison = Comparison(left, right, classes, own, Intended(found.mode, left, right))
    return comparison, ServiceNames((right, left))
