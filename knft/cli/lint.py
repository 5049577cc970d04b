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
from knft.comparison.manifest_changes import affected_objects, traffic_changes
from knft.config import Config
from knft.errors import UsageError
from knft.lint.change_notes import change_notes
from knft.lint.dry_run import DryRun, dry_run
from knft.lint.lint import lint as lint_manifests
from knft.lint.manifests import manifests_of
from knft.lint.report import LintReport, ManifestChange
from knft.model.described import Service
from knft.model.objects import KubeObject, ObjectChange
from knft.silence import without_log
from knft.source.described_kinds import LINTED_KINDS
from knft.source.scan_result import ScanResult
from knft.source.validate import CLUSTER_IP_MISSING, SERVICE_NAME_MISSING

STATUS_NO_PROBLEM, STATUS_PROBLEMS = 0, 3


def lint(*, paths: tuple[str, ...], output: str, **options: Any) -> int:  # noqa: ANN401 - click's values
    """Print the findings and return the exit status; raise UsageError, SourceError or ControlError."""
    _reject_contradictions(paths, options)
    report = _against_daemon(paths) if options["against_daemon"] else _against_files(paths, options)
    click.echo(
        msgspec.json.encode(report) + b"\n"
        if output == "json"
        else format_report(report, terminal_width(), colours=use_colours()),
        nl=False,
    )
    return STATUS_PROBLEMS if report.problems else STATUS_NO_PROBLEM


def _reject_contradictions(paths: tuple[str, ...], options: dict[str, Any]) -> None:
    against = options["against"]
    if options["node"] is None and options["node_ip"]:
        msg = "--node-ip requires --node: the addresses of all nodes cannot be the same"
        raise UsageError(msg)
    if "-" in paths and "-" in against:
        msg = "-f and --against cannot both be standard input"
        raise UsageError(msg)
    if against and options["against_daemon"]:
        msg = "--against cannot be used with --against-daemon; leave out one of them"
        raise UsageError(msg)
    if options["partial"] and not (against or options["against_daemon"]):
        msg = "--partial requires --against: name the manifests before the change, with all objects"
        raise UsageError(msg)


def _scan(paths: tuple[str, ...]) -> ScanResult:
    found = scan_manifests(paths, LINTED_KINDS)
    print_messages(found.notices)
    return found


def _against_files(paths: tuple[str, ...], options: dict[str, Any]) -> LintReport:
    """Return the findings, and what the change does if --against names the manifests before it."""
    node = None if options["node"] is None else node_name_from_options(options)
    config = config_of_node(node or "", options)
    scan = _scan(paths)
    if not options["against"]:
        return _report(scan, config, node)
    before = scan_manifests(options["against"], LINTED_KINDS)
    change = dry_run(_objects(scan), _objects(before)) if options["partial"] else None
    after = scan if change is None else _with_unchanged(scan, change, before)
    notes = change_notes(_objects(before), _objects(after), config)
    return _report_of_change(before, after, config, node, notes=notes, change=change)


def _against_daemon(paths: tuple[str, ...]) -> LintReport:
    """Return the findings, and what the change of the running knft's objects does on this node."""
    from knft.comparison.running_manifests import read_running_manifests  # noqa: PLC0415 - of this flag alone
    from knft.control.object_reader import ObjectReader  # noqa: PLC0415

    scan, running = _scan(paths), read_running_manifests(ObjectReader())
    before = ScanResult(_changes(running.objects))
    change = dry_run(_objects(scan), running.objects)
    return _report_of_change(
        before,
        _with_unchanged(scan, change, before),
        running.config,
        running.config.node_name,
        notes=running.notes,
        change=change,
        local_addresses=running.local_addresses,
    )


def _with_unchanged(scan: ScanResult, change: DryRun, before: ScanResult) -> ScanResult:
    """Return the changed objects, and those from before the change that have not changed."""
    named = {(type(item), item.key) for item in change.changed}
    unchanged = (item for item in _objects(before) if (type(item), item.key) not in named)
    changes = _changes((*change.changed, *unchanged))
    return replace(scan, changes=changes, problems=(*scan.problems, *before.problems))


def problems_without_check(problems: Iterable[str]) -> list[str]:
    """Return the reader's problems except those that are findings of a check of their own."""
    return [each for each in problems if not each.endswith((CLUSTER_IP_MISSING, SERVICE_NAME_MISSING))]


def _report(
    scan: ScanResult,
    config: Config,
    node: str | None,
    before: ScanResult | None = None,
    change: DryRun | None = None,
) -> LintReport:
    manifests = manifests_of(_objects(scan), config, node, problems_without_check(scan.problems))
    earlier = _objects(before) if before is not None else ()
    services = {item.key: item for item in earlier if isinstance(item, Service)}
    manifests = replace(manifests, earlier_services=services)
    if change is not None:
        unknown, awaiting = change.cluster_ips, change.awaiting_slices
        manifests = replace(manifests, unknown_cluster_ips=unknown, awaiting_slices=awaiting)
    return lint_manifests(manifests)


def _changes(objects: Iterable[KubeObject]) -> tuple[ObjectChange, ...]:
    return tuple(ObjectChange(None, item) for item in objects)


def _objects(scan: ScanResult) -> tuple[KubeObject, ...]:
    return tuple(change.current for change in scan.changes if change.current is not None)


def _report_of_change(
    before: ScanResult,
    after: ScanResult,
    config: Config,
    node: str | None,
    *,
    notes: Iterable[str],
    change: DryRun | None = None,
    local_addresses: tuple[str, ...] = (),
) -> LintReport:
    """Return the findings after a change, and how it treats packets on the nodes of both manifests, or on one.

    If ``change`` is given, no other objects have changed.
    """
    report, earlier = _report(after, config, node, before, change), _report(before, config, node)
    nodes = (node,) if node is not None else report.nodes or earlier.nodes
    configs = [replace(config, node_name=name) for name in nodes]
    sides = before.changes, after.changes
    with without_log():
        if change is not None:
            added = _changes(change.compared_objects())
            sides = affected_objects(change.changed, (*before.changes, *added), after.changes)
        traffic = traffic_changes(*sides, configs, local_addresses)
    known, listed = set(earlier.findings), set(report.findings)
    result = ManifestChange(
        nodes,
        traffic,
        tuple(each for each in report.findings if each not in known),
        tuple(each for each in earlier.findings if each not in listed),
    )
    unknown = change.notes if change is not None else ()
    return replace(report, change=result, notes=(*report.notes, *notes, *unknown))
