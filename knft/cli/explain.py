"""``knft explain``: says what a Service, a frontend, an address or an endpoint is, and why."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from knft.cli.explain_text import format_explanation
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options, config_of_node
from knft.cli.terminal import terminal_width, use_colours
from knft.comparison.captures import Rules
from knft.comparison.cluster_cidr import ClusterCidrNote
from knft.comparison.explained import kernel_rules, kernel_source, object_source
from knft.comparison.kube_proxy_inputs import interface_addresses
from knft.comparison.node_name import node_names
from knft.config import Config, parse_addresses
from knft.errors import CaptureError, ControlError, NoDaemonError, UsageError
from knft.explain.affinity import Client, with_affinity
from knft.explain.connections import with_connections
from knft.explain.explain import explain as explain_query
from knft.explain.explanation import Explanation
from knft.explain.outcomes import Probes
from knft.explain.query import Query, parse_query
from knft.explain.sources import KernelSource, ObjectSource
from knft.families import Family
from knft.model.addresses import parse_address
from knft.model.objects import ObjectChange
from knft.silence import without_log

STATUS_FOUND, STATUS_NOT_FOUND = 0, 3
_NO_TABLE = "this machine has no table of knft"


def explain(*, what: str, output: str, **options: Any) -> int:  # noqa: ANN401 - click's values
    """Print the explanation and return the exit status; raise a KnftError if there is none."""
    query = parse_query(what)
    if options["connections"] and options["paths"] and not options["live"]:
        msg = "--connections: conntrack entries are in this machine's kernel; add --live"
        raise UsageError(msg)
    found = _explanation(query, options)
    if options["connections"]:
        from knft.comparison.entries import frontend_connections  # noqa: PLC0415 - netlink

        found = with_connections(found, frontend_connections)
    click.echo(
        msgspec.json.encode(found) + b"\n"
        if output == "json"
        else format_explanation(found, terminal_width(), colours=use_colours()),
        nl=False,
    )
    return STATUS_FOUND if found.found else STATUS_NOT_FOUND


def _explanation(query: Query, options: dict[str, Any]) -> Explanation:
    source, live = options["source"], options["live"]
    from_flags = parse_addresses("--local-address", options["local_address"])
    client = _client(options)
    if options["paths"]:
        return _from_manifests(query, options, from_flags, client)
    if source == "kernel":
        if live:
            msg = "--live cannot be used with --source kernel: the kernel's rules are the source"
            raise UsageError(msg)
        return _from_kernel(query, _kernel_source(from_flags), client)
    if from_flags:
        msg = "--local-address requires -f or --source kernel: the running knft knows the node's addresses"
        raise UsageError(msg)
    try:
        return _from_daemon(query, client, live=live)
    except ControlError as error:
        if source == "daemon" or live:
            raise
        if isinstance(error, NoDaemonError):
            missing = f"no knft process was found in this network namespace, and {_NO_TABLE}"
            return _from_kernel(query, _kernel_source((), missing=missing), client)
        return _from_kernel(query, _kernel_source((), (f"the running knft was not asked: {error}",)), client)


def _client(options: dict[str, Any]) -> Client | None:
    """Return the client of --client; raise UsageError if it is no address, or the kernel is not read."""
    text = options["client"]
    if text is None:
        return None
    if options["live"] is False or (options["paths"] and not options["live"]):
        remedy = "add --live" if options["paths"] else "leave out --no-live"
        msg = f"--client: affinity entries are in this machine's kernel; {remedy}"
        raise UsageError(msg)
    found = parse_address(text)
    if found is None:
        msg = f"--client: {text!r} is not an IP address"
        raise UsageError(msg)
    return Client(*found)


def _from_kernel(query: Query, source: KernelSource, client: Client | None) -> Explanation:
    return _with_entries(explain_query(query, source), lambda: source.probes, client)


def _with_entries(
    found: Explanation, probes: Callable[[], Mapping[Family, Probes]], client: Client | None
) -> Explanation:
    from knft.comparison.entries import KernelEntries  # noqa: PLC0415 - netlink

    return with_affinity(found, probes, KernelEntries(), client)


def _from_manifests(
    query: Query, options: dict[str, Any], from_flags: tuple[str, ...], client: Client | None
) -> Explanation:
    if options["source"] is not None:
        msg = "--source cannot be used with -f: the manifests are the source"
        raise UsageError(msg)
    named = config_from_options(options) if options["node"] is not None or options["live"] else None
    changes = read_manifests(options["paths"], described=True)
    config, warnings = (named, ()) if named is not None else _config_of_first_node(changes, options)
    if not options["live"]:
        found = explain_query(query, _object_source(changes, config, from_flags, warnings))
        return _with_cluster_cidr_note(found, changes, config, from_flags)
    from knft.comparison.live import read_live_knft  # noqa: PLC0415 - netlink

    live = read_live_knft()
    # Both sides get the same addresses, so that only their rules differ.
    own = (*interface_addresses(changes, config), *live.addresses, *from_flags)
    kernel = kernel_rules(live.rules, own)
    found = _with_entries(explain_query(query, _object_source(changes, config, own), kernel), kernel.probes, client)
    return _with_cluster_cidr_note(found, changes, config, own)


def _with_cluster_cidr_note(
    found: Explanation, changes: tuple[ObjectChange, ...], config: Config, local_addresses: Iterable[str]
) -> Explanation:
    own = (*interface_addresses(changes, config), *local_addresses)
    notes = ClusterCidrNote(changes, config, own).of_explanation(found)
    return replace(found, warnings=(*found.warnings, *notes))


def _config_of_first_node(changes: tuple[ObjectChange, ...], options: dict[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """Return the settings of the first node of the manifests, and that results depend on the node if there are more."""
    nodes = node_names(changes)
    if not nodes:
        return config_from_options(options), ()
    if options["node_ip"] or options["local_address"]:
        msg = "--node-ip and --local-address require --node: the addresses of all nodes cannot be the same"
        raise UsageError(msg)
    others = (
        f"without --node, this is explained for the first of {len(nodes)} nodes; traffic policy Local, topology hints "
        "and NodePorts may have other results on the others"
    )
    return config_of_node(nodes[0], options), (others,) if len(nodes) > 1 else ()


def _object_source(
    changes: tuple[ObjectChange, ...], config: Config, local_addresses: Iterable[str], warnings: tuple[str, ...] = ()
) -> ObjectSource:
    """Return the objects as a source, without the log of the sync that renders them."""
    with without_log():
        return object_source(changes, config, local_addresses, warnings)


def _from_daemon(query: Query, client: Client | None, *, live: bool | None) -> Explanation:
    """Explain from the objects of the running knft, and compare with the kernel unless ``live`` is False.

    If ``live`` and ``client`` are None, the kernel is compared if its rules can be read.
    """
    from knft.comparison.running import RunningExplainer  # noqa: PLC0415 - of this source alone
    from knft.control.object_reader import ObjectReader  # noqa: PLC0415

    read_rules = None if live is False else _live_rules
    return RunningExplainer(
        ObjectReader(),
        read_rules,
        add_entries=lambda found, kernel: _with_entries(found, kernel.probes, client),
        requires_kernel=bool(live) or client is not None,
    ).explain(query)


def _live_rules() -> Rules:
    from knft.comparison.live import read_live_knft  # noqa: PLC0415 - netlink

    return read_live_knft().rules


def _kernel_source(
    from_flags: tuple[str, ...], warnings: tuple[str, ...] = (), missing: str = _NO_TABLE
) -> KernelSource:
    """Return knft's tables as a source; raise CaptureError, which begins with ``missing``, if there are none."""
    from knft.comparison.live import read_live_knft  # noqa: PLC0415 - netlink

    live = read_live_knft()
    if not live.rules:
        msg = f"{missing}: name manifests with -f"
        raise CaptureError("; ".join([msg, *warnings]))
    return kernel_source(live.rules, (*live.addresses, *from_flags), warnings)
