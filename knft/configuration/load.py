"""Loads Settings from flags and a file (docs/behaviour/configuration.md#flags)."""

import re
from collections.abc import Callable
from typing import NamedTuple

from knft.config import parse_one_address_per_family, parse_service_cidrs
from knft.configuration import flags
from knft.configuration.checks import FieldNames, find_problems
from knft.configuration.conversion import FlagOnlySettings, effective_document, find_warnings, make_settings
from knft.configuration.document import Document, normalize_durations, with_defaults
from knft.configuration.flags import GivenFlags, Origins
from knft.configuration.options import Support
from knft.configuration.settings import Settings
from knft.configuration.table import FLAGS
from knft.durations import parse_seconds
from knft.errors import ConfigurationError, UsageError
from knft.source.files import format_path
from knft.source.formatting import format_name, format_value

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A node name must be a DNS subdomain."""
_MAX_NODE_NAME = 253


_API_SERVER_FLAGS = ("--kubeconfig", "--master", "--insecure-send-credentials-without-tls")


class _LoadedDocument(NamedTuple):
    """A document with kube-proxy's defaults, the names of its fields in messages, and warnings."""

    document: Document
    field_name: FieldNames
    origins: Origins
    warnings: tuple[str, ...]


def load_settings(given: GivenFlags, hostname: str, read: Callable[[str], bytes]) -> Settings:
    """Return the Settings of the given flags and the file of --config.

    ``given`` holds the flags on the command line by their names in the options table (``--v`` for -v);
    ``read`` returns the content of a file.

    Raise UsageError or ConfigurationError with one line per problem.
    """
    _reject_flags(given)
    loaded = _load_from_file(given, read) if given.get("--config") else _load_from_flags(given)
    document, name, origins, warnings = loaded
    flags.apply_knft_flags(document, given, origins)
    problems = find_problems(document, name)
    try:
        node_name = _node_name(given, document, name, hostname)
        flag_only = FlagOnlySettings(
            node_name=node_name,
            node_ips=parse_one_address_per_family("--node-ip", given.get("--node-ip", ())),
            service_cidrs=parse_service_cidrs("--service-cidr", given.get("--service-cidr", ())),
            server=_api_server_address(given),
            sends_credentials_without_tls=bool(given.get("--insecure-send-credentials-without-tls")),
            max_sync_period=_max_sync_period(given),
            sync_burst=given.get("--sync-burst", 1),
            service_counters=bool(given.get("--service-counters")),
        )
    except UsageError as error:
        problems.append(str(error))
    if problems:
        raise ConfigurationError("\n".join(problems))
    normalize_durations(document)
    # kube-proxy has no --manifests, and --cleanup serves no NodePorts.
    is_for_kube_proxy = bool(given.get("--config")) or not (given.get("--manifests") or given.get("--cleanup"))
    document_warnings = find_warnings(document, name, frozenset(origins), may_come_from_kube_proxy=is_for_kube_proxy)
    ignored = [
        f"{flag}: {row.description}"
        for flag in given
        if (row := FLAGS[flag]).support is Support.IGNORED and _is_effective(given, flag)
    ]
    ineffective = [
        f"{flag}: it has no effect with --manifests"
        for flag in _API_SERVER_FLAGS
        if _is_ignored_with_manifests(given, flag)
    ]
    return make_settings(
        effective_document(document), flag_only, (*warnings, *ignored, *ineffective, *document_warnings)
    )


def _max_sync_period(given: GivenFlags) -> float:
    flag = "--max-sync-period"
    seconds = parse_seconds(flag, given.get(flag, FLAGS[flag].default))
    if not seconds:
        msg = f"{flag}: it must be more than 0"
        raise UsageError(msg)
    return seconds


def _is_ignored_with_manifests(given: GivenFlags, flag: str) -> bool:
    return bool(given.get("--manifests")) and flag in given and _is_effective(given, flag)


def _is_effective(given: GivenFlags, flag: str) -> bool:
    """Return whether a flag applies; a warning about --config covers the others."""
    return FLAGS[flag].applies_with_file or not given.get("--config")


def _reject_flags(given: GivenFlags) -> None:
    rejected = [
        f"{flag}: it is rejected: {row.description}"
        for flag in given
        if (row := FLAGS[flag]).support is Support.REJECTED
    ]
    if rejected:
        raise UsageError("\n".join(rejected))


def _load_from_flags(given: GivenFlags) -> _LoadedDocument:
    origins: Origins = {}
    document = flags.document_from_flags(given, origins)
    return _LoadedDocument(document, FieldNames(origins), origins, tuple(flags.ineffective_flag_warnings(given)))


def _load_from_file(given: GivenFlags, read: Callable[[str], bytes]) -> _LoadedDocument:
    from knft.configuration.file_parsing import parse_file  # noqa: PLC0415 - loading jsonschema takes long

    path = given["--config"]
    parsed, warnings = parse_file(path, read(path))
    document, origins = with_defaults(parsed), Origins()
    flags.apply_flags_to_file(document, given, origins)
    return _LoadedDocument(
        document, FieldNames(origins, format_path(path)), origins, (*warnings, *flags.ignored_flag_warnings(given))
    )


def _api_server_address(given: GivenFlags) -> str:
    """Return the value of --master. Reject credentials in it, without showing them."""
    server = str(given.get("--master", ""))
    if "@" in server:
        msg = (
            "--master: a user name or password before @ is not allowed; use https://HOST:PORT, "
            "and credentials in a kubeconfig (--kubeconfig)"
        )
        raise UsageError(msg)
    return server


def _node_name(given: GivenFlags, document: Document, name: FieldNames, hostname: str) -> str:
    """Return the node's name, and set it in the document if a flag gives it."""
    own, override = given.get("--node"), given.get("--hostname-override") or None
    names = {
        flag: _normalize_node_name(flag, text)
        for flag, text in (("--node", own), ("--hostname-override", override))
        if text is not None
    }
    if len(set(names.values())) > 1:
        both_names = " and ".join(f"{flag} {format_name(name)}" for flag, name in names.items())
        msg = f"--node: {both_names} differ; leave out one of them"
        raise UsageError(msg)
    if names:
        document["hostnameOverride"] = next(iter(names.values()))
        return _check_node_name(*next(iter(names.items())))
    if document["hostnameOverride"]:
        label = name("hostnameOverride")
        return _check_node_name(label, _normalize_node_name(label, document["hostnameOverride"]))
    if given.get("--manifests"):
        msg = "--node: it is required with --manifests; give the node's name, as in nodeName of EndpointSlices"
        raise UsageError(msg)
    return _normalize_node_name("the host's name", hostname)


def _check_node_name(label: str, name: str) -> str:
    """Return a configured name; raise UsageError if no Node can have it, instead of waiting for that Node."""
    if len(name) > _MAX_NODE_NAME or not _NODE_NAME.fullmatch(name):
        shown = format_value(name)
        msg = f"{label}: {shown} is not a valid node name: use letters, digits, - and ., at most {_MAX_NODE_NAME}"
        raise UsageError(msg)
    return name


def _normalize_node_name(name: str, text: str) -> str:
    found = text.strip().lower()
    if not found:
        msg = f"{name}: the name is empty; give the node's name, as in nodeName of EndpointSlices"
        raise UsageError(msg)
    return found
