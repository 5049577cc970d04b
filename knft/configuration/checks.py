"""Validates the values of a configuration; each message names a field or flag.

See docs/behaviour/configuration.md#validation.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import NamedTuple

from knft.config import (
    ALL,
    LOCALHOST,
    LOCALHOST_GATE,
    PRIMARY,
    parse_cluster_cidrs,
    parse_detect_local,
    parse_networks,
    parse_nodeport_addresses,
)
from knft.configuration.document import KIND, Document, get_field, split_host_port
from knft.configuration.gates import GATES
from knft.configuration.options import INT32_RANGE, SECTION_BY_MODE, Kind, Option, Support
from knft.configuration.problems import FieldPath, Problem, did_you_mean
from knft.configuration.table import FIELDS, MASQUERADE_BIT_RANGE, options_of_kind
from knft.detect_local import DETECT_LOCAL_MODES
from knft.durations import MAX_SECONDS, parse_duration, parse_unsigned
from knft.errors import UsageError
from knft.model import addresses
from knft.source.formatting import format_name, format_value, join_alternatives

_KNFT_FLAGS_BY_FIELD = {
    "syncPeriod": "--sync-period",
    "minSyncPeriod": "--min-sync-period",
    "masqueradeBit": "--masquerade-bit",
}


class FieldNames(NamedTuple):
    """Returns the name of a field for messages.

    A field that a flag set has the flag's name (``--proxy-mode``); other fields of a configuration file have their path
    (``KubeProxyConfiguration.mode``); without a file, a field has the name of a flag that can set it.
    """

    origins: Mapping[str, str]
    """Maps the path of a field to the flag that set it."""
    file: str = ""
    """The file's name in messages; "" without a file."""

    def __call__(self, path: str) -> str:
        """Return the name of a field with the file's name, for the start of a message."""
        return (
            f"{self.file}: {self.without_file(path)}"
            if self.file and path not in self.origins
            else self.without_file(path)
        )

    def without_file(self, path: str) -> str:
        """Return the name of a field without the file's name."""
        origin, field = self.origins.get(path), f"{KIND}.{path}"
        if origin or self.file:
            return origin or field
        return _KNFT_FLAGS_BY_FIELD.get(path.rpartition(".")[2]) or FIELDS[path].flag or field

    def position(self, path: str, *inner: str | int) -> FieldPath:
        """Return the position in the file of a field, or of an item in it; () if a flag set the field."""
        return () if path in self.origins else (*path.split("."), *inner)

    def problem(self, path: str, text: str, *inner: str | int) -> Problem:
        """Return a problem of a field, or of an item in it."""
        return Problem(self.position(path, *inner), f"{self(path)}: {text}")


_AT_LEAST_0 = (0, INT32_RANGE[1])
_RANGES = {
    "clientConnection.burst": _AT_LEAST_0,
    "conntrack.maxPerCore": _AT_LEAST_0,
    "conntrack.min": _AT_LEAST_0,
    "iptables.masqueradeBit": MASQUERADE_BIT_RANGE,
    "logging.verbosity": _AT_LEAST_0,
    "oomScoreAdj": (-1000, 1000),
}
_CONNTRACK_TIMES = tuple(path for path in FIELDS if path.startswith("conntrack.") and path.endswith("Timeout"))
_IPVS_TIMES = ("ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout")
_PORT = re.compile(r"[0-9]{1,5}")
_PORTS = re.compile(r"(?P<first>[0-9]{1,5})((?P<sign>[-+])(?P<last>[0-9]{1,5}))?")
_MINOR_VERSION = re.compile(r"|[0-9]+\.[0-9]+")
_OTHER_MODES = {
    "kernelspace": "a mode of kube-proxy on Windows; knft runs on Linux",
    "userspace": "a mode that kube-proxy no longer has",
}
_MODES = tuple(mode for mode in SECTION_BY_MODE if mode)
_LOG_FORMATS = ("text", "json")
_HIGHEST_PORT = 65535
_SOCKET_FORM = "an IP address and a port such as 0.0.0.0:10256 or [::]:10256"


def find_problems(
    document: Document, field_name: FieldNames, unusable: frozenset[str] = frozenset()
) -> Iterator[Problem]:
    """Yield the problems of a document that matches the schema and has all its fields.

    ``unusable`` are fields that were reported and have the default instead of their value: nothing is compared with
    them.
    """
    checks = (
        _check_durations,
        _check_formats,
        _check_ranges,
        _check_addresses,
        _check_networks,
        _check_feature_gates,
        _check_rejected,
    )
    yield from chain.from_iterable(check(document, field_name) for check in checks)
    yield from _check_detect_local(document, field_name, unusable)
    if document["mode"] in SECTION_BY_MODE and "mode" not in unusable:
        invalid = (option.field for option in options_of_kind(Kind.DURATION) if _duration_problem(document, option))
        yield from _check_periods_and_timeouts(document, field_name, {*unusable, *invalid})


def _check_durations(document: Document, field_name: FieldNames) -> Iterator[Problem]:
    for option in options_of_kind(Kind.DURATION):
        if text := _duration_problem(document, option):
            yield field_name.problem(option.field, text)


def _duration_problem(document: Document, option: Option) -> str:
    """Return what is wrong with the value of a duration; "" if nothing is."""
    text = get_field(document, option.field)
    if parse_unsigned(text.lstrip("+-")) is None:
        return f"{format_value(text)} is not a duration; write it as in 1s, 500ms or 1m30s"
    found, is_period = parse_duration(text), bool(option.modes)
    if is_period and (found is None or found > MAX_SECONDS * 1e9):
        return f"{format_value(text)} is longer than a year"
    return f"{format_value(text)} is longer than 292 years, the longest Go duration" if found is None else ""


def _check_periods_and_timeouts(document: Document, field_name: FieldNames, unusable: set[str]) -> Iterator[Problem]:
    mode = document["mode"]
    section = SECTION_BY_MODE[mode]
    longest, shortest = f"{section}.syncPeriod", f"{section}.minSyncPeriod"
    maximum, minimum = _nanoseconds(document, longest), _nanoseconds(document, shortest)
    if minimum < 0:
        yield field_name.problem(shortest, f"{get_field(document, shortest)} is less than 0")
    if not {longest, shortest} & unusable and (maximum <= 0 or minimum > maximum):
        least = f"{field_name.without_file(shortest)}, {get_field(document, shortest)}"
        found = get_field(document, longest)
        yield field_name.problem(longest, f"{found} must be more than 0 and not less than {least}")
    if _nanoseconds(document, "configSyncPeriod") <= 0 and "configSyncPeriod" not in unusable:
        yield field_name.problem("configSyncPeriod", f"{document['configSyncPeriod']} must be more than 0")
    for path in (*_CONNTRACK_TIMES, *(_IPVS_TIMES if mode == "ipvs" else ())):
        if _nanoseconds(document, path) < 0:
            yield field_name.problem(path, f"{get_field(document, path)} is less than 0")


def _nanoseconds(document: Document, path: str) -> int:
    return parse_duration(get_field(document, path)) or 0


def _check_formats(document: Document, field_name: FieldNames) -> Iterator[Problem]:
    mode, log_format = document["mode"], document["logging"]["format"]
    if mode not in SECTION_BY_MODE:
        suggestion = did_you_mean(mode, _MODES)
        otherwise = f"not a mode; use nftables, iptables or ipvs, or omit it{suggestion}"
        yield field_name.problem("mode", f"{format_value(mode)} is {_OTHER_MODES.get(mode, otherwise)}")
    if log_format not in _LOG_FORMATS:
        suggestion = did_you_mean(log_format, _LOG_FORMATS)
        yield field_name.problem("logging.format", f"{format_value(log_format)} is not text or json{suggestion}")
    if document["portRange"] and not _are_ports(document["portRange"]):
        ports = format_value(document["portRange"])
        yield field_name.problem("portRange", f"{ports} is not a port range such as 30000-32767")
    if not _MINOR_VERSION.fullmatch(document["showHiddenMetricsForVersion"]):
        path = "showHiddenMetricsForVersion"
        yield field_name.problem(path, f"{format_value(document[path])} is not a version such as 1.36")


def _are_ports(text: str) -> bool:
    found = _PORTS.fullmatch(text)
    if found is None:
        return False
    first, last = int(found["first"]), int(found["last"] or found["first"])
    return max(first, last) <= _HIGHEST_PORT and (found["sign"] != "-" or first <= last)


def _check_ranges(document: Document, field_name: FieldNames) -> Iterator[Problem]:
    ranges = dict(_RANGES)
    if document["mode"] == "nftables":
        ranges["nftables.masqueradeBit"] = MASQUERADE_BIT_RANGE
    for path, (low, high) in ranges.items():
        if not low <= get_field(document, path) <= high:
            yield field_name.problem(path, f"{get_field(document, path)} is not between {low} and {high}")
    if not math.isfinite(document["clientConnection"]["qps"]):
        yield field_name.problem("clientConnection.qps", "it must be a finite number")


def _check_addresses(document: Document, field_name: FieldNames) -> Iterator[Problem]:
    if addresses.parse_address(document["bindAddress"]) is None:
        yield field_name.problem("bindAddress", f"{format_value(document['bindAddress'])} is not an IP address")
    for path in ("healthzBindAddress", "metricsBindAddress"):
        text = document[path]
        parts = split_host_port(text)
        if text and (parts is None or not _is_address(parts[0]) or not _is_port(parts[1])):
            yield field_name.problem(path, f"{format_value(text)} is not {_SOCKET_FORM}")


def _is_address(text: str) -> bool:
    return addresses.parse_address(text) is not None


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and 1 <= int(text) <= _HIGHEST_PORT


def has_localhost_nodeports(document: Document) -> bool:
    """Return whether the feature gate for NodePorts on loopback addresses is on."""
    return bool(document["featureGates"].get(LOCALHOST_GATE))


def _check_networks(document: Document, field_name: FieldNames) -> Iterator[Problem]:
    has_localhost = has_localhost_nodeports(document)
    parse = partial(parse_nodeport_addresses, localhost_nodeports=has_localhost)
    keywords = (PRIMARY, ALL, LOCALHOST) if has_localhost else (PRIMARY, ALL)
    yield from _check_texts(document, field_name, "nodePortAddresses", parse, keywords)
    if document["mode"] == "ipvs":
        yield from _check_texts(document, field_name, "ipvs.excludeCIDRs", parse_networks)


def _check_texts(
    document: Document,
    field_name: FieldNames,
    path: str,
    parse: Callable[[str, tuple[str, ...]], object],
    words: tuple[str, ...] = (),
) -> Iterator[Problem]:
    for index, text in enumerate(get_field(document, path)):
        if text is None:  # It was no text, and was reported.
            continue
        try:
            parse(field_name(path), (text,))
        except UsageError as error:
            yield Problem(field_name.position(path, index), f"{error}{did_you_mean(text, words)}")


def _check_detect_local(document: Document, field_name: FieldNames, unusable: frozenset[str]) -> Iterator[Problem]:
    mode, pods = document["detectLocalMode"], document["detectLocal"]
    if mode not in DETECT_LOCAL_MODES:
        alternatives = f"{join_alternatives(DETECT_LOCAL_MODES)}{did_you_mean(mode, DETECT_LOCAL_MODES)}"
        yield field_name.problem("detectLocalMode", f"{format_value(mode)} is not {alternatives}")
        return
    interface = f"detectLocal.{'bridgeInterface' if mode == 'BridgeInterface' else 'interfaceNamePrefix'}"
    names = (
        field_name.without_file("detectLocalMode"),
        field_name("detectLocal.bridgeInterface"),
        field_name("detectLocal.interfaceNamePrefix"),
    )
    if interface not in unusable:
        yield from _usage_errors(
            field_name,
            interface,
            lambda: parse_detect_local(mode, pods["bridgeInterface"], pods["interfaceNamePrefix"], flags=names),
        )
    if mode == "ClusterCIDR" and "detectLocalMode" not in unusable:
        cidrs = (document["clusterCIDR"],)
        yield from _usage_errors(
            field_name, "clusterCIDR", lambda: parse_cluster_cidrs(field_name("clusterCIDR"), cidrs)
        )


def _usage_errors(field_name: FieldNames, path: str, parse: Callable[[], object]) -> Iterator[Problem]:
    try:
        parse()
    except UsageError as error:
        yield Problem(field_name.position(path), str(error))


def _check_feature_gates(document: Document, field_name: FieldNames) -> Iterator[Problem]:
    path = "featureGates"
    for gate, on in document[path].items():
        known = GATES.get(gate)
        if known is None:
            suggestion = did_you_mean(gate, GATES)
            yield field_name.problem(path, f"unknown feature gate {format_name(gate)}{suggestion}", gate)
        elif known.is_locked and on is not known.fixed_value:
            yield field_name.problem(path, f"{gate} cannot be {format_value(on)}: {known.description}", gate)


def _check_rejected(document: Document, field_name: FieldNames) -> Iterator[Problem]:
    for path, option in FIELDS.items():
        is_reported = path in field_name.origins  # knft.configuration.load rejects the flag.
        if option.support is Support.REJECTED and not is_reported and get_field(document, path) != option.default:
            yield field_name.problem(
                path, f"{format_value(get_field(document, path))} is rejected: {option.description}"
            )
