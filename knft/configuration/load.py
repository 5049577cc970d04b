"""Loads Settings from flags and a file (docs/behaviour/configuration.md#flags)."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from knft.config import parse_one_address_per_family, parse_service_cidrs
from knft.configuration import flags
from knft.configuration.checks import FieldNames, find_problems
from knft.configuration.conversion import FlagOnlySettings, effective_document, find_warnings, make_settings
from knft.configuration.document import Document, normalize_durations, with_defaults
from knft.configuration.flags import GivenFlags, Origins, collected
from knft.configuration.options import Support
from knft.configuration.problems import Problem
from knft.configuration.settings import Settings
from knft.configuration.table import FIELDS, FLAGS
from knft.durations import parse_seconds
from knft.errors import ConfigurationError, UsageError
from knft.source.files import format_path
from knft.source.formatting import format_name, format_value

if TYPE_CHECKING:
    from knft.configuration.file_parsing import ParsedFile

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
    file: "ParsedFile | None" = None
    unusable: frozenset[str] = frozenset()
    """Fields of the file that could not be read, and have the default instead."""


def load_settings(
    given: GivenFlags, hostname: str, read: Callable[[str], bytes], invalid_flags: Iterable[str] = ()
) -> Settings:
    """Return the Settings of the given flags and the file of --config.

    ``given`` holds the flags on the command line by their names in the options table (``--v`` for -v);
    ``read`` returns the content of a file. ``invalid_flags`` are messages about flags that could not be read.

    Raise ConfigurationError with one line for each problem, those of the file in its order.
    """
    errors = [*invalid_flags, *_rejected_flags(given)]
    loaded = _load_from_file(given, read, errors) if given.get("--config") else _load_from_flags(given, errors)
    flags.apply_knft_flags(loaded.document, given, loaded.origins)
    found = list(find_problems(loaded.document, loaded.field_name, loaded.unusable - loaded.origins.keys()))
    flag_only = _flag_only_settings(given, loaded, hostname, errors, found)
    messages = [*_messages(loaded.file, found), *errors]
    if messages:
        raise ConfigurationError("\n".join(messages))
    normalize_durations(loaded.document)
    warnings = (*loaded.warnings, *_warnings(given, loaded))
    return make_settings(effective_document(loaded.document), flag_only, warnings)


def _messages(file: "ParsedFile | None", found: list[Problem]) -> list[str]:
    """Return the messages about the file's fields, and then about fields that flags set."""
    of_flags = [problem.message for problem in found if file is None or not problem.path]
    return of_flags if file is None else [*file.messages(problem for problem in found if problem.path), *of_flags]


def _warnings(given: GivenFlags, loaded: _LoadedDocument) -> Iterator[str]:
    for flag in given:
        if (option := FLAGS[flag]).support is Support.IGNORED and _is_effective(given, flag):
            yield f"{flag}: {option.description}"
    for flag in _API_SERVER_FLAGS:
        if _is_ignored_with_manifests(given, flag):
            yield f"{flag}: it has no effect with --manifests"
    # kube-proxy has no --manifests, and --cleanup serves no NodePorts.
    is_for_kube_proxy = bool(given.get("--config")) or not (given.get("--manifests") or given.get("--cleanup"))
    yield from find_warnings(
        loaded.document, loaded.field_name, frozenset(loaded.origins), may_come_from_kube_proxy=is_for_kube_proxy
    )


def _flag_only_settings(
    given: GivenFlags, loaded: _LoadedDocument, hostname: str, errors: list[str], found: list[Problem]
) -> FlagOnlySettings:
    """Return the settings that only flags have, and the node's name; add their problems to ``errors`` and ``found``."""
    node_name = ""
    try:
        node_name = _node_name(given, loaded, hostname)
    except UsageError as error:
        is_in_file = loaded.file is not None and not {"--node", "--hostname-override"} & given.keys()
        path = loaded.field_name.position("hostnameOverride") if is_in_file else ()
        found.append(Problem(path, str(error)))
    settings = FlagOnlySettings(node_name=node_name, sync_burst=given.get("--sync-burst", 1))
    with collected(errors):
        settings = settings._replace(node_ips=_list_of_flag(given, "--node-ip", parse_one_address_per_family))
    with collected(errors):
        settings = settings._replace(service_cidrs=_list_of_flag(given, "--service-cidr", parse_service_cidrs))
    with collected(errors):
        settings = settings._replace(server=_api_server_address(given))
    with collected(errors):
        settings = settings._replace(max_sync_period=_max_sync_period(given))
    return settings._replace(
        sends_credentials_without_tls=bool(given.get("--insecure-send-credentials-without-tls")),
        service_counters=bool(given.get("--service-counters")),
        drop_invalid_packets=bool(given.get("--drop-invalid-packets")),
    )


def _list_of_flag(
    given: GivenFlags, flag: str, parse: Callable[[str, tuple[str, ...]], tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the values of a flag; raise UsageError with a line for each invalid one."""
    errors: list[str] = []
    texts = flags.split_list(flag, given.get(flag, ()))
    for text in texts:
        with collected(errors):
            parse(flag, (text,))
    if errors:
        raise UsageError("\n".join(errors))
    return parse(flag, tuple(texts))


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


def _rejected_flags(given: GivenFlags) -> Iterator[str]:
    for flag in given:
        if (option := FLAGS[flag]).support is Support.REJECTED:
            yield f"{flag}: it is rejected: {option.description}"
    if given.get("--once") and not given.get("--manifests"):
        yield "--once requires --manifests"


def _load_from_flags(given: GivenFlags, errors: list[str]) -> _LoadedDocument:
    origins: Origins = {}
    document = flags.document_from_flags(given, origins, errors)
    return _LoadedDocument(document, FieldNames(origins), origins, tuple(flags.ineffective_flag_warnings(given)))


def _load_from_file(given: GivenFlags, read: Callable[[str], bytes], errors: list[str]) -> _LoadedDocument:
    from knft.configuration.file_parsing import parse_file  # noqa: PLC0415 - loading YAML takes long

    path, origins = given["--config"], Origins()
    file, unusable, warnings = None, frozenset(FIELDS), tuple[str, ...]()
    try:
        file = parse_file(path, read(path))
        unusable = file.invalid
        warnings = (*file.warnings, *(problem.message for problem in file.limited_unknown()))
    except ConfigurationError as error:
        errors += str(error).splitlines()
    document = with_defaults(file.document if file else {})
    flags.apply_flags_to_file(document, given, origins, errors)
    return _LoadedDocument(
        document,
        FieldNames(origins, format_path(path)),
        origins,
        (*warnings, *flags.ignored_flag_warnings(given)),
        file,
        unusable,
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


def _node_name(given: GivenFlags, loaded: _LoadedDocument, hostname: str) -> str:
    """Return the node's name, and set it in the document if a flag gives it."""
    document = loaded.document
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
        label = loaded.field_name("hostnameOverride")
        return _check_node_name(label, _normalize_node_name(label, document["hostnameOverride"]))
    if given.get("--manifests") and "hostnameOverride" not in loaded.unusable:
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
