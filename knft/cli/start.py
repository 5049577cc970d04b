"""The start of ``knft run``: flags and a file become settings, and then it is said what to do with them."""

import logging
import socket
from collections.abc import Mapping
from typing import Any

import click
from msgspec.structs import replace

from knft.cli.logs import set_up_logging
from knft.configuration.content import read_configuration
from knft.configuration.load import settings_from
from knft.configuration.settings import Settings
from knft.errors import KernelError, UsageError

log = logging.getLogger("knft")


def start(given: Mapping[str, Any]) -> None:
    """Do what the given flags ask for, in kube-proxy's order: write the configuration, clean up, or run (I.4)."""
    _refuse_what_does_not_fit(given)
    contents: dict[str, bytes] = {}

    def read(path: str) -> bytes:
        contents[path] = read_configuration(path)
        return contents[path]

    settings = settings_from(given, socket.gethostname(), read)
    set_up_logging(settings.logging)
    for warning in settings.warnings:
        log.warning("%s", warning)
    if path := given.get("--write-config-to"):
        from knft.configuration.write import write  # noqa: PLC0415 - loads YAML

        write(settings.document, path)
        log.info("the configuration is written to %s", path)
    elif given.get("--cleanup"):
        _clean_up()
    else:
        _run(settings, given, contents)


def _run(settings: Settings, given: Mapping[str, Any], contents: Mapping[str, bytes]) -> None:
    from knft.cli.run import Control, run  # noqa: PLC0415 - loads all that talks to the kernel

    config = given.get("--config") or None
    control = Control(
        manifests=given.get("--manifests") or None,
        once=given.get("--once", False),
        init_only=given.get("--init-only", False),
        config_path=config,
        config_content=contents.get(config or "", b""),
        flags={flag.lstrip("-"): _text(value) for flag, value in given.items()},
    )
    run(settings if control.manifests is None else _quiet(settings, given), control)


def _quiet(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Return settings that serve no probes and metrics, but where a flag says so: beside manifests nobody asks."""
    healthz = settings.healthz_bind_address if "--healthz-bind-address" in given else ""
    metrics = settings.metrics_bind_address if "--metrics-bind-address" in given else ""
    return replace(settings, healthz_bind_address=healthz, metrics_bind_address=metrics)


def _text(value: Any) -> str:  # noqa: ANN401 - whatever a flag is
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_what_does_not_fit(given: Mapping[str, Any]) -> None:
    """Raise UsageError where two flags ask for different things."""
    if given.get("--once") and not given.get("--manifests"):
        msg = "--once: it means nothing without --manifests"
        raise UsageError(msg)


def _clean_up() -> None:
    """Remove knft's tables and all that any kube-proxy left; what fails does not stop the rest (I.4)."""
    from knft.cli.cleanup import cleanup  # noqa: PLC0415 - loads libnftables
    from knft.cli.takeover import remove_leftovers  # noqa: PLC0415

    failure: KernelError | None = None
    try:
        cleanup()
    except KernelError as error:
        click.echo(f"knft: {error}", err=True)
        failure = error
    remove_leftovers("all")
    if failure is not None:
        msg = "encountered an error while tearing down rules: knft's tables are not all gone, see above"
        raise KernelError(msg) from failure
