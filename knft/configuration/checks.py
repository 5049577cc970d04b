"""Validates the values of a configuration; each message names a field or flag.

See docs/behaviour/configuration.md#validation.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from knft.config import (
    parse_cluster_cidrs,
    parse_detect_local,
    parse_networks,
    parse_nodeport_addresses,
)
from knft.configuration.document import KIND, Document, get_field, split_host_port
from knft.configuration.gates import GATES
from knft.configuration.options import INT32_RANGE, SECTION_BY_MODE, Kind, Support
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
_HIGHEST_PORT = 65535
_SOCKET_FORM = "an IP address and a port such as 0.0.0.0:10256 or [::]:10256"


def find_problems(document: Document, field_name: FieldNames) -> list[str]:
    """Return the problems of a document that matches the schema and has all its fields."""
    first = [*_check_durations(document, field_name)]
    mode = document["mode"]
    checks = (
        _check_formats,
        _check_ranges,
        _check_addresses,
        _check_networks,
        _check_detect_local,
        _check_feature_gates,
        _check_rejected,
    )
    found = chain.from_iterable(check(document, field_name) for check in checks)
    # An invalid duration cannot be compared with others.
    periods = () if first or mode not in SECTION_BY_MODE else _check_periods_and_timeouts(document, field_name, mode)
    return [*first, *found, *periods]


def _check_durations(document: Document, field_name: FieldNames) -> Iterator[str]:
    for row in options_of_kind(Kind.DURATION):
        text = get_field(document, row.field)
        if parse_unsigned(text.lstrip("+-")) is None:
            yield f"{field_name(row.field)}: {format_value(text)} is not a duration; write it as in 1s, 500ms or 1m30s"
            continue
        found, is_period = parse_duration(text), bool(row.modes)
        if is_period and (found is None or found > MAX_SECONDS * 1e9):
            yield f"{field_name(row.field)}: {format_value(text)} is longer than a year"
        elif found is None:
            yield f"{field_name(row.field)}: {format_value(text)} is longer than 292 years, the longest Go duration"


def _check_periods_and_timeouts(document: Document, field_name: FieldNames, mode: str) -> Iterator[str]:
    section = SECTION_BY_MODE[mode]
    longest, shortest = f"{section}.syncPeriod", f"{section}.minSyncPeriod"
    maximum, minimum = _nanoseconds(document, longest), _nanoseconds(document, shortest)
    if minimum < 0:
        yield f"{field_name(shortest)}: {get_field(document, shortest)} is less than 0"
    if maximum <= 0 or minimum > maximum:
        least = f"{field_name.without_file(shortest)}, {get_field(document, shortest)}"
        yield f"{field_name(longest)}: {get_field(document, longest)} must be more than 0 and not less than {least}"
    if _nanoseconds(document, "configSyncPeriod") <= 0:
        yield f"{field_name('configSyncPeriod')}: {document['configSyncPeriod']} must be more than 0"
    for path in (*_CONNTRACK_TIMES, *(_IPVS_TIMES if mode == "ipvs" else ())):
        if _nanoseconds(document, path) < 0:
            yield f"{field_name(path)}: {get_field(document, path)} is less than 0"


def _nanoseconds(document: Document, path: str) -> int:
    return parse_duration(get_field(document, path)) or 0


def _check_formats(document: Document, field_name: FieldNames) -> Iterator[str]:
    mode = document["mode"]
    if mode not in SECTION_BY_MODE:
        otherwise = "not a mode; use nftables, iptables or ipvs, or omit it"
        yield f"{field_name('mode')}: {format_value(mode)} is {_OTHER_MODES.get(mode, otherwise)}"
    if document["logging"]["format"] not in ("text", "json"):
        yield f"{field_name('logging.format')}: {format_value(document['logging']['format'])} is not text or json"
    if document["portRange"] and not _are_ports(document["portRange"]):
        ports = format_value(document["portRange"])
        yield f"{field_name('portRange')}: {ports} is not a port range such as 30000-32767"
    if not _MINOR_VERSION.fullmatch(document["showHiddenMetricsForVersion"]):
        path = "showHiddenMetricsForVersion"
        yield f"{field_name(path)}: {format_value(document[path])} is not a version such as 1.36"


def _are_ports(text: str) -> bool:
    found = _PORTS.fullmatch(text)
    if found is None:
        return False
    first, last = int(found["first"]), int(found["last"] or found["first"])
    return max(first, last) <= _HIGHEST_PORT and (found["sign"] != "-" or first <= last)


def _check_ranges(document: Document, field_name: FieldNames) -> Iterator[str]:
    ranges = dict(_RANGES)
    if document["mode"] == "nftables":
        ranges["nftables.masqueradeBit"] = MASQUERADE_BIT_RANGE
    for path, (low, high) in ranges.items():
        if not low <= get_field(document, path) <= high:
            yield f"{field_name(path)}: {get_field(document, path)} is not between {low} and {high}"
    if not math.isfinite(document["clientConnection"]["qps"]):
        yield f"{field_name('clientConnection.qps')}: it must be a finite number"


def _check_addresses(document: Document, field_name: FieldNames) -> Iterator[str]:
    if addresses.parse_address(document["bindAddress"]) is None:
        yield f"{field_name('bindAddress')}: {format_value(document['bindAddress'])} is not an IP address"
    for path in ("healthzBindAddress", "metricsBindAddress"):
        text = document[path]
        parts = split_host_port(text)
        if text and (parts is None or not _is_address(parts[0]) or not _is_port(parts[1])):
            yield f"{field_name(path)}: {format_value(text)} is not {_SOCKET_FORM}"


def _is_address(text: str) -> bool:
    return addresses.parse_address(text) is not None


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and 1 <= int(text) <= _HIGHEST_PORT


def _check_networks(document: Document, field_name: FieldNames) -> Iterator[str]:
    yield from _usage_errors(
        lambda: parse_nodeport_addresses(field_name("nodePortAddresses"), (*document["nodePortAddresses"],))
    )
    if document["mode"] == "ipvs":
        yield from _usage_errors(
            lambda: parse_networks(field_name("ipvs.excludeCIDRs"), (*document["ipvs"]["excludeCIDRs"],))
        )


def _check_detect_local(document: Document, field_name: FieldNames) -> Iterator[str]:
    mode, pods = document["detectLocalMode"], document["detectLocal"]
    if mode not in DETECT_LOCAL_MODES:
        yield f"{field_name('detectLocalMode')}: {format_value(mode)} is not {join_alternatives(DETECT_LOCAL_MODES)}"
        return
    names = (
        field_name.without_file("detectLocalMode"),
        field_name("detectLocal.bridgeInterface"),
        field_name("detectLocal.interfaceNamePrefix"),
    )
    yield from _usage_errors(
        lambda: parse_detect_local(mode, pods["bridgeInterface"], pods["interfaceNamePrefix"], flags=names)
    )
    if mode == "ClusterCIDR":
        yield from _usage_errors(lambda: parse_cluster_cidrs(field_name("clusterCIDR"), (document["clusterCIDR"],)))


def _usage_errors(parse: Callable[[], object]) -> Iterator[str]:
    try:
        parse()
    except UsageError as error:
        yield str(error)


def _check_feature_gates(document: Document, field_name: FieldNames) -> Iterator[str]:
    for gate, on in document["featureGates"].items():
        known = GATES.get(gate)
        if known is None:
            yield f"{field_name('featureGates')}: unknown feature gate {format_name(gate)}"
        elif known.is_locked and on is not known.fixed_value:
            yield f"{field_name('featureGates')}: {gate} cannot be {format_value(on)}: {known.description}"


def _check_rejected(document: Document, field_name: FieldNames) -> Iterator[str]:
    for path, row in FIELDS.items():
        if row.support is Support.REJECTED and get_field(document, path) != row.default:
            yield f"{field_name(path)}: {format_value(get_field(document, path))} is rejected: {row.description}"
