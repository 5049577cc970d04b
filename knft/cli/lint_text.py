"""Formats the report of ``knft lint`` as text: the conclusion first, then each finding."""

import itertools
import shlex
from collections.abc import Iterable, Iterator

from knft.cli.text_layout import Layout
from knft.explain.words import listed
from knft.lint.report import Finding, LintReport, ManifestChange, TrafficChange

_INDENT = 2
_STYLES = {"problem": "bold red", "warning": "bold yellow"}


def format_report(report: LintReport, width: int | None, *, colours: bool = False) -> str:
    """Return the report as lines, folded at ``width``; None: not folded."""
    layout = Layout(width, colours=colours)
    if report.change is not None:
        layout.paragraph(change_conclusion(report.change), style="bold")
    layout.paragraph(conclusion(report), style=f"bold {_colour(report)}")
    for text in report.notes:
        layout.paragraph(f"note: {text}")
    if report.change is None:
        _add_findings(layout, report.findings)
        return layout.text()
    if unchanged := len(report.findings) - len(report.change.new_findings):
        layout.paragraph(
            f"note: {_count(unchanged, 'finding')} existed before the change; knft lint without --against lists all"
        )
    _add_traffic(layout, report.change)
    for title, findings in _sections(report.change):
        layout.blank()
        layout.paragraph(title)
        _add_findings(layout, findings)
    return layout.text()


def _colour(report: LintReport) -> str:
    if report.problems:
        return "red"
    return "yellow" if report.warnings else "green"


def conclusion(report: LintReport) -> str:
    """Return how many problems and warnings there are."""
    where = f"in {_count(report.services, 'Service')}"
    problems, warnings = report.problems, report.warnings
    if not warnings:
        return f"{_count(problems, 'problem') if problems else 'no problems'} {where}"
    return f"{_count(problems, 'problem') if problems else 'no problems'}, {_count(warnings, 'warning')} {where}"


def change_conclusion(change: ManifestChange) -> str:
    """Return what a change of manifests does, in one line."""
    findings = f"{_count(len(change.new_findings), 'new finding')}, {len(change.gone_findings)} gone"
    if not change.nodes:
        return f"traffic was not compared: there is no Node object, name a node with --node; {findings}"
    services = {each.service.partition(":")[0] for each in change.traffic if each.service}
    other = any(not each.service for each in change.traffic)
    named = [*([f"of {_count(len(services), 'Service')}"] if services else [])]
    named += ["to addresses of no Service"] if other else []
    if not named:
        return f"no packet is treated differently on {_count(len(change.nodes), 'node')}; {findings}"
    nodes = {node for each in change.traffic for node in each.nodes}
    where = f"{len(nodes)} of {_count(len(change.nodes), 'node')}"
    return f"packets {' and '.join(named)} are treated differently on {where}; {findings}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _sections(change: ManifestChange) -> Iterator[tuple[str, tuple[Finding, ...]]]:
    for title, findings in (("new", change.new_findings), ("gone", change.gone_findings)):
        if findings:
            yield f"{title} findings", findings


def _add_findings(layout: Layout, findings: Iterable[Finding]) -> None:
    for each in findings:
        layout.blank()
        ports = f", port{'' if len(each.ports) == 1 else 's'} {listed(each.ports)}" if each.ports else ""
        layout.paragraph(f"{each.severity}: {each.object}{ports} [{each.id}]", style=_STYLES[each.severity])
        pairs = [("what", each.what), ("traffic", each.traffic), ("do", each.advice)]
        layout.pairs(pairs, _INDENT)


def _add_traffic(layout: Layout, change: ManifestChange) -> None:
    for (service, families), changes in itertools.groupby(change.traffic, lambda each: (each.service, each.families)):
        layout.blank()
        layout.paragraph(f"changed: {service or 'addresses of no Service'} ({listed(families)})", style="bold")
        layout.pairs((_traffic(each, change) for each in changes), _INDENT)


def _traffic(each: TrafficChange, change: ManifestChange) -> tuple[str, str]:
    nodes = "all nodes" if len(each.nodes) == len(change.nodes) > 1 else listed(each.nodes)
    outcomes = f"{each.before} → {each.after}" if each.before and each.after else each.description
    return f"on {nodes}", f"{outcomes}; for example: {_trace_flags(each)}" if each.example else outcomes


def _trace_flags(each: TrafficChange) -> str:
    """Return the example as flags of ``knft trace``, to add to those that name the manifests."""
    return f"{shlex.join([f'--node={each.nodes[0]}'])} {each.example}"
