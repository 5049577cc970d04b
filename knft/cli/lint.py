"""``knft lint``: finds what in manifests cannot work or will surprise, and what a change of manifests does."""

from collections.abc import Iterable
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from knft.cli.lint_text import format_report
from knft.cli.manifests import print_messages, scan_manifests
from knft.cli.options import config_of_node, node_name_from_options
from knft.cli.terminal import terminal_width, use_colours
from knft.comparison.manifest_changes import traffic_changes
from knft.config import Config
from knft.errors import UsageError
from knft.lint.change_notes import change_notes
from knft.lint.lint import lint as lint_manifests
from knft.lint.manifests import manifests_of
from knft.lint.report import LintReport, ManifestChange
from knft.model.described import Service
from knft.model.objects import KubeObject
from knft.silence import without_log
from knft.source.described_kinds import LINTED_KINDS
from knft.source.scan_result import ScanResult
from knft.source.validate import CLUSTER_IP_MISSING, SERVICE_NAME_MISSING

STATUS_NO_PROBLEM, STATUS_PROBLEMS = 0, 3


def lint(*, paths: tuple[str, ...], against: tuple[str, ...], output: str, **options: Any) -> int:  # noqa: ANN401
    """Print the findings and return the exit status; raise UsageError or SourceError."""
    node = None if options["node"] is None else node_name_from_options(options)
    if node is None and options["node_ip"]:
        msg = "--node-ip requires --node: the addresses of all nodes cannot be the same"
        raise UsageError(msg)
    if "-" in paths and "-" in against:
        msg = "-f and --against cannot both be standard input"
        raise UsageError(msg)
    config = config_of_node(node or "", options)
    scan = scan_manifests(paths, LINTED_KINDS)
    print_messages(scan.notices)
    before = scan_manifests(against, LINTED_KINDS) if against else None
    report = _report(scan, config, node, before)
    if before is not None:
        notes = (*report.notes, *change_notes(_objects(before), _objects(scan), config))
        report = replace(report, change=_change(before, scan, report, config, node), notes=notes)
    click.echo(
        msgspec.json.encode(report) + b"\n"
        if output == "json"
        else format_report(report, terminal_width(), colours=use_colours()),
        nl=False,
    )
    return STATUS_PROBLEMS if report.problems else STATUS_NO_PROBLEM


def problems_without_check(problems: Iterable[str]) -> list[str]:
    """Return the reader's problems except those that are findings of a check of their own."""
    return [each for each in problems if not each.endswith((CLUSTER_IP_MISSING, SERVICE_NAME_MISSING))]


def _report(scan: ScanResult, config: Config, node: str | None, before: ScanResult | None = None) -> LintReport:
    manifests = manifests_of(_objects(scan), config, node, problems_without_check(scan.problems))
    earlier = _objects(before) if before is not None else ()
    services = {item.key: item for item in earlier if isinstance(item, Service)}
    return lint_manifests(replace(manifests, earlier_services=services))


def _objects(scan: ScanResult) -> tuple[KubeObject, ...]:
    return tuple(change.current for change in scan.changes if change.current is not None)


def _change(
    before: ScanResult, after: ScanResult, report: LintReport, config: Config, node: str | None
) -> ManifestChange:
    """Return what the change does on the nodes of both manifests, or on the node of --node."""
    earlier = _report(before, config, node)
    nodes = (node,) if node is not None else report.nodes or earlier.nodes
    configs = [replace(config, node_name=name) for name in nodes]
    with without_log():
        traffic = traffic_changes(before.changes, after.changes, configs)
    known, listed = set(earlier.findings), set(report.findings)
    return ManifestChange(
        nodes,
        traffic,
        tuple(each for each in report.findings if each not in known),
        tuple(each for each in earlier.findings if each not in listed),
    )
