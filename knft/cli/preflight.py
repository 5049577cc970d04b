"""``knft preflight``: checks whether this node is ready to change from kube-proxy to knft."""

import shlex
import socket
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from knft.cli.installation import Method, find_installation
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options, settings_of_file
from knft.cli.preflight_text import format_preflight
from knft.cli.terminal import terminal_width, use_colours
from knft.config import PRIMARY, Config
from knft.configuration.file_content import read_configuration
from knft.configuration.settings import ClientSettings, ConntrackSettings
from knft.errors import ApiServerError, ConfigurationError, UsageError
from knft.kernel.probe import require_privilege
from knft.model.objects import ObjectChange
from knft.preflight.checks import check
from knft.preflight.facts import ConfigurationFacts, Unread
from knft.preflight.machine import NO_OBJECTS, Inputs, read_facts
from knft.preflight.report import Verdict
from knft.silence import without_log

_STATUSES: dict[Verdict, int] = {"ready": 0, "undecided": 1, "not ready": 3}
"""The exit status for each verdict; 2 is invalid usage."""


def preflight(*, output: str, **options: Any) -> int:  # noqa: ANN401 - click's values
    """Print the result and return the exit status.

    Raises UsageError, SourceError, UnsupportedError, or ConfigurationError if the file of --config cannot be read.
    """
    found = check(read_facts(_inputs(options)))
    click.echo(
        msgspec.json.encode(found) + b"\n"
        if output == "json"
        else format_preflight(found, terminal_width(), colours=use_colours()),
        nl=False,
    )
    return _STATUSES[found.verdict]


def _inputs(options: dict[str, Any]) -> Inputs:
    configuration = None
    if options["config"] is not None:
        config, conntrack, configuration = load_configuration(options)
    else:
        # With -f the name must be given, because the objects may be another machine's.
        is_here = not options["paths"] and options["node"] is None
        config = config_from_options(options | {"node": socket.gethostname()} if is_here else options)
        conntrack = ConntrackSettings()
    paths = options["paths"] if options["kubeconfig"] is None else ("objects.yaml",)
    return Inputs(
        config,
        conntrack,
        configuration,
        _objects(options, config.node_name),
        is_image=find_installation().method is Method.IMAGE,
        lists_foreign_tables=options["foreign_tables"],
        diff_command=shlex.join(["knft", "diff", "--live", *diff_flags(paths, config)]),
    )


def _objects(options: dict[str, Any], node_name: str) -> tuple[ObjectChange, ...] | Unread:
    """Return the objects of -f or of the API server as additions."""
    if options["kubeconfig"] is None:
        return read_manifests(options["paths"]) if options["paths"] else NO_OBJECTS
    if options["paths"]:
        msg = "-f cannot be used with --kubeconfig; leave out one of them"
        raise UsageError(msg)
    require_privilege()
    from knft.preflight.cluster import list_objects  # noqa: PLC0415 - HTTP

    settings = ClientSettings(options["kubeconfig"])
    with without_log():
        try:
            return list_objects(settings, node_name)
        except ApiServerError as error:
            return Unread(str(error))


def load_configuration(options: dict[str, Any]) -> tuple[Config, ConntrackSettings, ConfigurationFacts]:
    """Return the settings of the configuration file, or its errors and default settings."""
    path = options["config"]
    content = read_configuration(path)
    try:
        settings = settings_of_file(content, options)
    except ConfigurationError as error:
        name = options["node"] or socket.gethostname()
        errors = tuple(str(error).splitlines())
        return Config(name), ConntrackSettings(), ConfigurationFacts(path, errors)
    return settings.config, settings.conntrack, ConfigurationFacts(path, warnings=settings.warnings)


def diff_flags(paths: tuple[str, ...], config: Config) -> Iterator[str]:
    """Yield the flags with which ``knft diff`` renders the same rules."""
    for path in paths:
        yield from ("-f", path)
    yield from ("--node", config.node_name)
    defaults = Config(config.node_name)
    if config.detect_local_mode != defaults.detect_local_mode:
        yield from ("--detect-local-mode", config.detect_local_mode)
    if config.pod_interface:
        is_prefix = config.pod_interface.endswith("*")
        yield "--pod-interface-name-prefix" if is_prefix else "--pod-bridge-interface"
        yield config.pod_interface.removesuffix("*")
    lists = {
        "--node-ip": config.node_ips,
        "--cluster-cidr": config.cluster_cidrs,
        "--service-cidr": config.service_cidrs,
        "--nodeport-addresses": () if config.nodeport_addresses == (PRIMARY,) else config.nodeport_addresses,
    }
    for flag, values in lists.items():
        if values:
            yield from (flag, ",".join(values))
    switches = {"--masquerade-all": config.masquerade_all, "--drop-invalid-packets": config.drop_invalid_packets}
    yield from (flag for flag, is_set in switches.items() if is_set)
    if config.masquerade_bit != defaults.masquerade_bit:
        yield from ("--masquerade-bit", str(config.masquerade_bit))
