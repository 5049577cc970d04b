"""Applies flags to a document in kube-proxy's order (docs/behaviour/configuration.md#flags)."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from knft.configuration.conversion import section_path
from knft.configuration.document import (
    HEALTHZ_PORT,
    METRICS_PORT,
    Document,
    default_document,
    get_field,
    set_field,
    with_port,
)
from knft.configuration.options import SECTION_BY_MODE, Kind, Option
from knft.configuration.table import FIELDS, FLAGS, MIN_SYNC_PERIOD
from knft.errors import UsageError
from knft.source.formatting import format_value

GivenFlags = Mapping[str, Any]
"""Maps the flags on the command line to their values: ``-v`` is ``--v``, lists are tuples of strings."""

Origins = dict[str, str]
"""Maps the path of a field to the flag that set it."""

_FIELDS_BY_KNFT_FLAG = {
    "--min-sync-period": "minSyncPeriod",
    "--sync-period": "syncPeriod",
    "--masquerade-bit": "masqueradeBit",
}
_PER_MODE_FLAGS = {
    "--iptables-sync-period": "syncPeriod",
    "--iptables-min-sync-period": "minSyncPeriod",
    "--ipvs-sync-period": "syncPeriod",
    "--ipvs-min-sync-period": "minSyncPeriod",
    "--masquerade-all": "masqueradeAll",
}
_PORT_FLAGS = (
    ("--healthz-port", "healthzBindAddress", HEALTHZ_PORT),
    ("--metrics-port", "metricsBindAddress", METRICS_PORT),
)
_EMPTY_MEANS_DEFAULT = ("clientConnection.qps", "clientConnection.burst", "detectLocalMode")
"""Fields for which kube-proxy, or its client library, replaces an empty flag with the default."""
_FORM_OF_GATES, _FORM_OF_VMODULE = "NAME=true or NAME=false", "PATTERN=LEVEL"
_DIGITS = re.compile(r"[0-9]+")
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


def document_from_flags(given: GivenFlags, origins: Origins, errors: list[str]) -> Document:
    """Return the document of kube-proxy's flags without a file; add an error for each value that cannot be parsed."""
    document = default_document()
    mode = given.get("--proxy-mode", "")
    if mode == "ipvs":
        # kube-proxy's flags start from the defaults of mode iptables.
        set_field(document, "ipvs.minSyncPeriod", MIN_SYNC_PERIOD)
    for flag, value in given.items():
        option = FLAGS[flag]
        if not option.field or (flag in _PER_MODE_FLAGS and not _applies_in_mode(flag, mode)):
            continue
        path = (
            section_path(mode, _PER_MODE_FLAGS[flag])
            if flag in _PER_MODE_FLAGS and mode in SECTION_BY_MODE
            else option.field
        )
        origins[path] = flag
        with collected(errors):
            found = _parse_value(flag, option, value)
            set_field(document, path, found if found or path not in _EMPTY_MEANS_DEFAULT else option.default)
    for flag, path, default_port in _PORT_FLAGS:
        # A file cannot disable a server: an empty address in a file means the default.
        given_port = default_port if "--write-config-to" in given else given.get(flag, default_port)
        set_field(document, path, with_port(get_field(document, path), given_port) if given_port else "")
    return document


def _applies_in_mode(flag: str, mode: str) -> bool:
    """Return whether a flag for a mode's section applies in ``mode``; --masquerade-all always does."""
    if flag == "--masquerade-all":
        return True
    return flag.startswith("--ipvs-") is (mode == "ipvs")


def ineffective_flag_warnings(given: GivenFlags) -> list[str]:
    """Return warnings about flags without effect in this mode or with --write-config-to."""
    mode = given.get("--proxy-mode", "")
    ineffective_in_mode = [flag for flag in given if flag in _PER_MODE_FLAGS and not _applies_in_mode(flag, mode)]
    if mode == "nftables" and "--iptables-masquerade-bit" in given:
        ineffective_in_mode.append("--iptables-masquerade-bit")
    writes = "--write-config-to" in given
    ineffective_ports = [flag for flag, _, _ in _PORT_FLAGS if flag in given and writes]
    disabled_servers = [flag for _, path, _ in _PORT_FLAGS if writes and given.get(flag := FIELDS[path].flag) == ""]
    return [
        *(f"{flag}: it has no effect in mode {mode or 'iptables'}, as in kube-proxy" for flag in ineffective_in_mode),
        *(f"{flag}: it has no effect with --write-config-to, as in kube-proxy" for flag in ineffective_ports),
        *(f"{flag}: the written file enables the server, since a file cannot disable it" for flag in disabled_servers),
    ]


def apply_flags_to_file(document: Document, given: GivenFlags, origins: Origins, errors: list[str]) -> None:
    """Apply the flags that also work with --config to a document from a file; add an error for each invalid value."""
    for flag, value in given.items():
        option = FLAGS[flag]
        if option.applies_with_file and option.field and option.kind is Kind.VMODULE:
            with collected(errors):
                set_field(
                    document, option.field, [*_parse_value(flag, option, value), *get_field(document, option.field)]
                )
        elif option.applies_with_file and option.field and option.field != "hostnameOverride":
            with collected(errors):
                set_field(document, option.field, _parse_value(flag, option, value))
            origins[option.field] = flag


def apply_knft_flags(document: Document, given: GivenFlags, origins: Origins) -> None:
    """Apply knft's own flags, which apply whatever the mode, and with --config too."""
    mode = document["mode"] if document["mode"] in SECTION_BY_MODE else ""
    for flag, field in _FIELDS_BY_KNFT_FLAG.items():
        if flag in given:
            path = section_path(mode, field)
            set_field(document, path, given[flag])
            origins[path] = flag


def ignored_flag_warnings(given: GivenFlags) -> list[str]:
    """Return warnings about flags that are ignored because of --config."""
    return [
        f"{flag}: ignored because --config is given, as in kube-proxy"
        for flag in given
        if not FLAGS[flag].applies_with_file
    ]


@contextmanager
def collected(errors: list[str]) -> Iterator[None]:
    """Add the text of a UsageError to ``errors``."""
    try:
        yield
    except UsageError as error:
        errors += str(error).splitlines()


def _parse_value(flag: str, option: Option, value: Any) -> Any:  # noqa: ANN401 - a value of the option's kind
    parse = _PARSERS.get(option.field) or _PARSERS.get(option.kind)
    return value if parse is None else parse(flag, value)


def split_list(_: str, value: tuple[str, ...]) -> list[str]:
    """Return the list of a flag, which may be given several times with comma-separated values."""
    return [part.strip() for text in value for part in text.split(",") if part.strip()]


def _parse_feature_gates(flag: str, value: tuple[str, ...]) -> dict[str, bool]:
    pairs = [(text, text.partition("=")) for text in split_list(flag, value)]
    _reject(flag, (text for text, (_, _, on) in pairs if _bool_key(on) not in _BOOLEANS), _FORM_OF_GATES)
    return {name.strip(): _BOOLEANS[_bool_key(on)] for _, (name, _, on) in pairs}


def _bool_key(text: str) -> str:
    return text.strip().lower()


def _parse_vmodule(flag: str, value: tuple[str, ...]) -> list[Document]:
    pairs = {text: text.partition("=") for text in split_list(flag, value)}
    wrong = (text for text, (pattern, _, level) in pairs.items() if not (pattern and _DIGITS.fullmatch(level)))
    _reject(flag, wrong, _FORM_OF_VMODULE)
    return [{"filePattern": pattern, "verbosity": int(level[:9])} for pattern, _, level in pairs.values()]


def _reject(flag: str, texts: Iterable[str], form: str) -> None:
    """Raise UsageError with a line for each of ``texts``, if there are any."""
    lines = [f"{flag}: {format_value(text)} is not of the form {form}" for text in texts]
    if lines:
        raise UsageError("\n".join(lines))


_PARSERS: dict[str | Kind, Callable[[str, Any], Any]] = {
    Kind.LIST: split_list,
    Kind.FEATURE_GATES: _parse_feature_gates,
    Kind.VMODULE: _parse_vmodule,
    "clusterCIDR": lambda flag, value: ",".join(split_list(flag, value)),
}
