"""``knft run``: reads flags and configuration file, then runs the daemon, cleans up, or writes the configuration."""

import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from knft import __version__
from knft.app.log_writer import LogWriter
from knft.cli.logs import set_up_logging, time_zone
from knft.configuration.file_content import read_configuration
from knft.configuration.load import load_settings
from knft.configuration.settings import Settings
from knft.errors import KernelError
from knft.source.files import format_path

log = logging.getLogger("knft")


def run(given: Mapping[str, Any], invalid_flags: Sequence[str] = ()) -> None:
    """Write the configuration, clean up, or run the daemon: the first that the flags ask for, as kube-proxy does.

    ``invalid_flags`` are messages about flags that are not in ``given`` because they could not be read.
    See docs/behaviour/configuration.md#run.
    """
    contents: dict[str, bytes] = {}

    def read(path: str) -> bytes:
        contents[path] = read_configuration(path)
        return contents[path]

    settings = load_settings(given, socket.gethostname(), read, invalid_flags)
    log_writer = set_up_logging(settings.logging)
    for warning in settings.warnings:
        log.warning("%s", warning)
    if path := given.get("--write-config-to"):
        from knft.configuration.write import write_document  # noqa: PLC0415 - loads YAML

        write_document(settings.document, path)
        log.info("wrote the configuration to %s", path)
    elif given.get("--cleanup"):
        _remove_all(wait_for_lock=given.get("--wait-for-lock", False))
    else:
        _run(settings, given, contents, log_writer)


def _run(settings: Settings, given: Mapping[str, Any], contents: Mapping[str, bytes], log_writer: LogWriter) -> None:
    from knft.app.run import RunOptions, run  # noqa: PLC0415 - loads the kernel's libraries

    config = given.get("--config") or None
    options = RunOptions(
        manifests=given.get("--manifests") or None,
        once=given.get("--once", False),
        init_only=given.get("--init-only", False),
        allow_node_mismatch=given.get("--allow-node-mismatch", False),
        wait_for_lock=given.get("--wait-for-lock", False),
        config_path=config,
        config_content=contents.get(config or "", b""),
        start_message=_start_message(settings, given.get("--manifests") or None),
        flags={flag.lstrip("-"): _flag_text(value) for flag, value in given.items()},
    )
    run(settings if options.manifests is None else _without_servers(settings, given), options, log_writer)


def _start_message(settings: Settings, manifests: str | None) -> str:
    source = f"manifests in {format_path(manifests)}" if manifests is not None else "an API server"
    # JSON has seconds since 1970.
    zone = f"; log times are in {time_zone()}" if settings.logging.format == "text" else ""
    return f"knft {__version__} starts for node {settings.config.node_name!r} with {source}, in mode nftables{zone}"


def _without_servers(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Return settings for --manifests, which serves probes and metrics only at addresses that flags name."""
    healthz = settings.healthz_bind_address if "--healthz-bind-address" in given else ""
    metrics = settings.metrics_bind_address if "--metrics-bind-address" in given else ""
    return replace(settings, healthz_bind_address=healthz, metrics_bind_address=metrics)


def _flag_text(value: Any) -> str:  # noqa: ANN401 - click's value
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _remove_all(*, wait_for_lock: bool) -> None:
    """Remove knft's tables and kube-proxy's leftovers of every mode. After a failure, continue with the rest."""
    from knft.cli.cleanup import cleanup  # noqa: PLC0415 - loads libnftables
    from knft.cli.cleanup_report import CleanupReport  # noqa: PLC0415
    from knft.cli.kube_proxy_cleanup import remove_leftovers  # noqa: PLC0415
    from knft.cli.output import unfailing_output  # noqa: PLC0415
    from knft.cli.terminal import terminal_width  # noqa: PLC0415

    failure: KernelError | None = None
    with unfailing_output() as output:
        try:
            cleanup(CleanupReport(output, width=terminal_width()), wait_for_lock=wait_for_lock)
        except KernelError as error:
            failure = error
        remove_leftovers("all", CleanupReport(output, width=terminal_width()))
    if failure is not None:
        raise failure
