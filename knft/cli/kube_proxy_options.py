"""Parses the flags of kube-proxy's modes, and reads the files that they name."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from knft.cli.flags import sync_flag_defaults
from knft.cli.options import config_from_options
from knft.comparison.kube_proxy_inputs import KubeProxyOptions
from knft.config import parse_addresses, parse_networks
from knft.durations import parse_seconds
from knft.errors import SourceError, UsageError
from knft.model.names import NamespacedName
from knft.proxy_mode import Mode
from knft.source.files import error_reason, format_path, read_named_file
from knft_compat import iptables, ipvs, nftables

Parsed = TypeVar("Parsed")


def kube_proxy_options(mode: Mode, options: dict[str, Any]) -> KubeProxyOptions:
    """Return the options of a first sync in a mode, for commands without the flags of syncs.

    Raise UsageError or SourceError naming flag or file.
    """
    return sync_options(mode, {**sync_flag_defaults(), **options, "family": None})


def sync_options(mode: Mode, options: dict[str, Any]) -> KubeProxyOptions:
    """Return the options of a sync in a mode; raise UsageError or SourceError naming flag or file.

    --service-cidr is accepted without effect, so that the same flags work with every backend.
    """
    # knft's words for --nodeport-addresses differ from those of these modes, whose default is every address.
    # See docs/behaviour/configuration.md#node-addresses.
    config = config_from_options({**options, "nodeport_addresses": ()})
    return KubeProxyOptions(
        config=config,
        settings=_settings(mode, options),
        # kube-proxy's own default in mode nftables.
        nodeport_addresses=options["nodeport_addresses"] or (("primary",) if mode is Mode.NFTABLES else ()),
        local_addresses=parse_addresses("--local-address", options["local_address"]),
        random_fully=options["random_fully"],
    )


def _settings(mode: Mode, options: dict[str, Any]) -> iptables.Settings | ipvs.Settings | nftables.Settings:
    match mode:
        case Mode.IPTABLES:
            return iptables_settings(options)
        case Mode.IPVS:
            return ipvs_settings(options)
        case Mode.NFTABLES:
            return nftables.Settings()


def iptables_settings(options: dict[str, Any]) -> iptables.Settings:
    """Return the settings of mode iptables; raise UsageError or SourceError naming flag or file."""
    existing = _existing(options["existing"], options["family"])
    changed = frozenset(_parse_service_name("--changed", text) for text in options["changed"])
    return iptables.Settings(
        localhost_node_ports=options["iptables_localhost_nodeports"],
        has_nfacct=options["nfacct"],
        conntrack_is_liberal=options["conntrack_tcp_be_liberal"],
        existing=existing,
        changed_services=changed or None,
    )


def _existing(path: str | None, family: str | None) -> iptables.ExistingRules | None:
    if path is None:
        return None
    existing = iptables.read_existing_rules(_flag_and_path("--existing", path), _read_text("--existing", path))
    families = {item.value.lower(): item for item in existing.families}
    if family is not None and families and family not in families:
        msg = (
            f"{_flag_and_path('--existing', path)} has no rules of --family {family}, only of {' and '.join(families)}"
        )
        raise UsageError(msg)
    return existing


def ipvs_settings(options: dict[str, Any]) -> ipvs.Settings:
    """Return the settings of mode ipvs; raise UsageError or SourceError naming flag or file."""
    found = _read_file(ipvs.read_servers, "--existing-ipvs", options["existing_ipvs"])
    return ipvs.Settings(
        rule_version=_rule_version(options["vintage"]),
        scheduler=_check_scheduler(options["ipvs_scheduler"]),
        excluded_cidrs=parse_networks("--ipvs-exclude-cidrs", options["ipvs_exclude_cidrs"]),
        strict_arp=options["ipvs_strict_arp"],
        timeouts=ipvs.Timeouts(*(_seconds(f"--ipvs-{name}-timeout", options) for name in ("tcp", "tcpfin", "udp"))),
        kernel=_parse_kernel_version(options["kernel"]),
        existing_servers=None if found is None else found.servers,
        existing_addresses=_read_file(ipvs.read_addresses, "--existing-addresses", options["existing_addresses"]),
        warnings=() if found is None else found.warnings,
    )


def _read_file(reader: Callable[[str, str], Parsed], flag: str, path: str | None) -> Parsed | None:
    return None if path is None else reader(_flag_and_path(flag, path), _read_text(flag, path))


def _flag_and_path(flag: str, path: str) -> str:
    return f"{flag}: {format_path(path)}"


def _read_text(flag: str, path: str) -> str:
    if not path:
        msg = f"{flag}: the file name is empty"
        raise UsageError(msg)
    try:
        content = read_named_file(Path(path))
        return content.removeprefix(BOM_UTF8).decode()
    except (OSError, SourceError) as error:
        msg = f"{_flag_and_path(flag, path)}: {error_reason(error)}"
        raise SourceError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{_flag_and_path(flag, path)}: invalid UTF-8 at byte {error.start + 1}"
        raise SourceError(msg) from error


def _parse_service_name(flag: str, text: str) -> NamespacedName:
    found = re.fullmatch(r"([a-z0-9.-]+)/([a-z0-9.-]+)", text.strip())
    if found is None:
        msg = f"{flag}: {text!r} is not a Service; write NAMESPACE/NAME, as in shop/frontend"
        raise UsageError(msg)
    return NamespacedName(found[1], found[2])


def _rule_version(text: str) -> ipvs.RuleVersion:
    renamed = ipvs.DEPRECATED_NAMES.get(text)
    if renamed is not None:
        click.echo(
            f"knft: --vintage {text}: deprecated, because no release has exactly these rules; use {renamed.value}",
            err=True,
        )
        return renamed
    try:
        return ipvs.RuleVersion(text)
    except ValueError as error:
        msg = f"--vintage: unknown version {text!r}; use one of {', '.join(item.value for item in ipvs.RuleVersion)}"
        raise UsageError(msg) from error


def _check_scheduler(text: str) -> str:
    # The name goes into shell commands, so its characters are checked. Which schedulers exist, only the kernel knows.
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,14}", text):
        msg = f"--ipvs-scheduler: {text!r} is not the name of a scheduler, such as rr, lc or mh"
        raise UsageError(msg)
    return text


def _seconds(flag: str, options: dict[str, Any]) -> int:
    return int(parse_seconds(flag, options[flag.removeprefix("--").replace("-", "_")]))


def _parse_kernel_version(text: str) -> tuple[int, int]:
    found = re.match(r"([0-9]{1,3})\.([0-9]{1,3})(?![0-9])", text)
    if found is None:
        msg = f"--kernel: {text!r} is not a version such as 6.1"
        raise UsageError(msg)
    return int(found[1]), int(found[2])
