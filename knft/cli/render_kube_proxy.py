"""``knft render --backend iptables`` and ``--backend ipvs``: prints the input of the tools that kube-proxy runs."""

from collections.abc import Iterator
from typing import Any

import click
from msgspec.structs import replace

from knft.cli.kube_proxy_options import sync_options
from knft.cli.manifests import read_manifests
from knft.comparison.kube_proxy_inputs import KubeProxyOptions, ObjectSnapshots, sync_inputs
from knft.comparison.node_name import node_warnings
from knft.config import Config
from knft.errors import SourceError, UsageError
from knft.families import Family
from knft.model import objects
from knft.model.names import NamespacedName
from knft.model.objects import ObjectChange
from knft.proxy_mode import Mode
from knft_compat import iptables, ipvs, nftables
from knft_compat.sync_input import SyncInput
from knft_compat.sync_output import SyncOutput, script


def render_kube_proxy(
    backend: str,
    *,
    paths: tuple[str, ...],
    output: str,
    family: str | None,
    part: str | None,
    cleanup: bool,
    **options: Any,  # noqa: ANN401 - click's values
) -> None:
    """Print the output of a sync or cleanup in a mode, or raise before anything is printed."""
    sync_flags = sync_options(Mode(backend), {**options, "family": family})
    snapshots = _read_snapshots(paths, options["before"], has_ip_mode=_supports_ip_mode(sync_flags))
    inputs = {item: found for item, found in sync_inputs(snapshots, sync_flags) if family in (None, item.value.lower())}
    outputs = [_output(found, sync_flags, cleanup=cleanup) for found in inputs.values()]
    text = _format(outputs, output, part)
    left_out = (warning for item in outputs for warning in item.warnings)
    for message in (*_warnings(sync_flags, snapshots, inputs, cleanup=cleanup), *left_out):
        click.echo(f"knft: {message}", err=True)
    click.echo(text, nl=False)


def _supports_ip_mode(options: KubeProxyOptions) -> bool:
    return not isinstance(options.settings, ipvs.Settings) or ipvs.supports_ip_mode(options.settings.rule_version)


def _output(sync_input: SyncInput, options: KubeProxyOptions, *, cleanup: bool) -> SyncOutput:
    settings = _settings(options)
    if isinstance(settings, iptables.Settings):
        return iptables.cleanup(sync_input, settings) if cleanup else iptables.sync(sync_input, settings)
    return ipvs.cleanup(sync_input, settings) if cleanup else ipvs.sync(sync_input, settings)


def _settings(options: KubeProxyOptions) -> iptables.Settings | ipvs.Settings:
    if isinstance(options.settings, nftables.Settings):
        msg = "--backend nftables prints knft's rules; compare with kube-proxy's by `knft diff --against nftables`"
        raise UsageError(msg)
    return options.settings


def _read_snapshots(paths: tuple[str, ...], before: tuple[str, ...], *, has_ip_mode: bool) -> ObjectSnapshots:
    """Return the objects of -f and --before; raise UsageError or SourceError.

    Without ``has_ip_mode`` the field ipMode is removed, as by an API server without this field.
    """
    if "-" in paths and "-" in before:
        msg = "--before: standard input is already used by -f; name a file"
        raise UsageError(msg)
    if "" in before:
        msg = "--before: the file name is empty"
        raise UsageError(msg)
    current = _read(paths, has_ip_mode=has_ip_mode)
    try:
        return ObjectSnapshots(current, _read(before, has_ip_mode=has_ip_mode) if before else None)
    except SourceError as error:
        msg = f"--before: {error}"
        raise SourceError(msg) from error


def _read(paths: tuple[str, ...], *, has_ip_mode: bool) -> tuple[ObjectChange, ...]:
    changes = read_manifests(paths)
    if has_ip_mode:
        return changes
    return tuple(ObjectChange(None, _without_ip_mode(change.current)) for change in changes)


def _without_ip_mode(item: objects.KubeObject | None) -> objects.KubeObject | None:
    if not isinstance(item, objects.Service) or item.status is None or item.status.load_balancer is None:
        return item
    ingress = tuple(replace(entry, ip_mode=None) for entry in item.status.load_balancer.ingress or ())
    return replace(item, status=objects.ServiceStatus(objects.LoadBalancerStatus(ingress)))


def _warnings(
    options: KubeProxyOptions, snapshots: ObjectSnapshots, inputs: dict[Family, SyncInput], *, cleanup: bool
) -> Iterator[str]:
    settings = _settings(options)
    yield from node_warnings(options.config, snapshots.current)
    if isinstance(settings, iptables.Settings):
        yield from _missing_services(snapshots, settings.changed_services or frozenset())
        return
    yield from settings.warnings
    if not cleanup:
        yield from _missing_addresses(options.config, inputs)


def _format(outputs: list[SyncOutput], output: str, part: str | None) -> str:
    if part is not None:
        return "".join(_parts(outputs, part, output))
    if output == "json":
        return "".join(item.json().decode() for item in outputs)
    return script(outputs)


def _parts(outputs: list[SyncOutput], name: str, output: str) -> Iterator[str]:
    """Yield one part of each family's output; raise UsageError if it does not exist or is for several tools."""
    tools: dict[str, None] = {}
    for sync_output in outputs:
        only = sync_output.with_only_part(name)
        if only is None:
            msg = f"--part: unknown part {name!r}; use one of {', '.join(sync_output.part_names)}"
            raise UsageError(msg)
        tools |= dict.fromkeys(part.tool[0] for part in only.parts)
        yield only.json().decode() if output == "json" else sync_output.part_text(name) or ""
    if output == "text" and len(tools) > 1:
        msg = f"--part: {name} is for a different tool in each family, {' and '.join(tools)}; choose one with --family"
        raise UsageError(msg)


def _missing_services(snapshots: ObjectSnapshots, changed: frozenset[NamespacedName]) -> Iterator[str]:
    """Yield a warning for each Service of --changed that is in no manifest."""
    for name in sorted(changed - snapshots.services, key=str):
        yield f"--changed: Service {name} is in no manifest; remove it from --changed unless it was deleted"


def _missing_addresses(config: Config, inputs: dict[Family, SyncInput]) -> Iterator[str]:
    """Yield a warning for each family that has NodePorts but no address of the node."""
    for family, found in inputs.items():
        if not found.node.local_addresses and any(rendered.plan.port.node_port for rendered in found.ports):
            yield (
                f"no NodePort is served: no {family.value} address of node {config.node_name} is known; "
                "name one with --node-ip or --local-address"
            )
