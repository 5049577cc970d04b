"""What is wrong with the values of a configuration (I.2): every problem, each a line that names its field or flag."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple, get_args

from knft.config import (
    LONGEST_SECONDS,
    DetectLocal,
    nanoseconds,
    parse_cluster_cidrs,
    parse_detect_local,
    parse_networks,
    parse_nodeport_addresses,
)
from knft.configuration import durations
from knft.configuration.document import KIND, Document, get, split_host_port
from knft.configuration.gates import GATES
from knft.configuration.rows import INT32, NAMES_OF_SECTIONS, Kind, Verdict
from knft.configuration.table import FIELDS, rows_of
from knft.errors import UsageError
from knft.model import addresses
from knft.source.words import listing, plain, shown

_OWN_NAMES = {"syncPeriod": "--sync-period", "minSyncPeriod": "--min-sync-period", "masqueradeBit": "--masquerade-bit"}


class Names(NamedTuple):
    """How messages name fields: by the flag that set one; else as fields of the file, or by a flag that could."""

    origins: Mapping[str, str]
    """The flag that set a field, by the field's path."""
    file: str = ""
    """The file, as messages show it; "" where there is none."""

    def __call__(self, path: str) -> str:
        """Return the name that a message begins with."""
        return f"{self.file}: {self.short(path)}" if self.file and path not in self.origins else self.short(path)

    def short(self, path: str) -> str:
        """Return the name without the file's."""
        origin, field = self.origins.get(path), f"{KIND}.{path}"
        if origin or self.file:
            return origin or field
        return _OWN_NAMES.get(path.rpartition(".")[2]) or FIELDS[path].flag or field


_AT_LEAST_0 = (0, INT32[1])
_RANGES = {
    "clientConnection.burst": _AT_LEAST_0,
    "conntrack.maxPerCore": _AT_LEAST_0,
    "conntrack.min": _AT_LEAST_0,
    "iptables.masqueradeBit": (0, 31),
    "logging.verbosity": _AT_LEAST_0,
    "oomScoreAdj": (-1000, 1000),
}
_CONNTRACK_TIMES = tuple(path for path in FIELDS if path.startswith("conntrack.") and path.endswith("Timeout"))
_IPVS_TIMES = ("ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout")
_PORT = re.compile(r"[0-9]{1,5}")
_PORTS = re.compile(r"(?P<first>[0-9]{1,5})((?P<sign>[-+])(?P<last>[0-9]{1,5}))?")
_MINOR_VERSION = re.compile(r"|[0-9]+\.[0-9]+")
_OTHER_MODES = {
    "kernelspace": "it is kube-proxy's mode on Windows, and knft runs on Linux",
    "userspace": "kube-proxy does not have that mode any more",
}
_HIGHEST_PORT = 65535
_IPS = "an IP address and a port such as 0.0.0.0:10256 or [::]:10256"


def problems_of(document: Document, name: Names) -> list[str]:
    """Return what is wrong with a document that fits the schema and has all its fields."""
    first = [*_durations(document, name)]
    mode = document["mode"]
    checks = (_words, _ranges, _addresses, _networks, _pods, _gates, _refused)
    found = chain.from_iterable(check(document, name) for check in checks)
    # What no duration is cannot be compared with another.
    periods = () if first or mode not in NAMES_OF_SECTIONS else _periods(document, name, mode)
    return [*first, *found, *periods]


def _durations(document: Document, name: Names) -> Iterator[str]:
    for row in rows_of(Kind.DURATION):
        text = get(document, row.field)
        if nanoseconds(text.lstrip("+-")) is None:
            yield f"{name(row.field)}: {shown(text)} is not a duration; write it as in 1s, 500ms or 1m30s"
            continue
        found, is_period = durations.parse(text), bool(row.modes)
        if is_period and (found is None or found > LONGEST_SECONDS * 1e9):
            yield f"{name(row.field)}: {shown(text)} is longer than a year"
        elif found is None:
            yield f"{name(row.field)}: {shown(text)} is longer than 292 years, which Go's durations end at"


def _periods(document: Document, name: Names, mode: str) -> Iterator[str]:
    section = NAMES_OF_SECTIONS[mode]
    longest, shortest = f"{section}.syncPeriod", f"{section}.minSyncPeriod"
    maximum, minimum = _nanoseconds(document, longest), _nanoseconds(document, shortest)
    if minimum < 0:
        yield f"{name(shortest)}: {get(document, shortest)} is less than 0"
    if maximum <= 0 or minimum > maximum:
        least = f"{name.short(shortest)}, {get(document, shortest)}"
        yield f"{name(longest)}: {get(document, longest)} has to be more than 0 and not less than {least}"
    if _nanoseconds(document, "configSyncPeriod") <= 0:
        yield f"{name('configSyncPeriod')}: {document['configSyncPeriod']} has to be more than 0"
    for path in (*_CONNTRACK_TIMES, *(_IPVS_TIMES if mode == "ipvs" else ())):
        if _nanoseconds(document, path) < 0:
            yield f"{name(path)}: {get(document, path)} is less than 0"


def _nanoseconds(document: Document, path: str) -> int:
    return durations.parse(get(document, path)) or 0


def _words(document: Document, name: Names) -> Iterator[str]:
    mode = document["mode"]
    if mode not in NAMES_OF_SECTIONS:
        otherwise = "it has to be nftables, iptables, ipvs, or nothing"
        yield f"{name('mode')}: {shown(mode)}: {_OTHER_MODES.get(mode, otherwise)}"
    if document["logging"]["format"] not in ("text", "json"):
        yield f"{name('logging.format')}: {shown(document['logging']['format'])} is not text or json"
    if document["portRange"] and not _are_ports(document["portRange"]):
        yield f"{name('portRange')}: {shown(document['portRange'])} is not a range of ports such as 30000-32767"
    if not _MINOR_VERSION.fullmatch(document["showHiddenMetricsForVersion"]):
        path = "showHiddenMetricsForVersion"
        yield f"{name(path)}: {shown(document[path])} is not a version such as 1.36"


def _are_ports(text: str) -> bool:
    found = _PORTS.fullmatch(text)
    if found is None:
        return False
    first, last = int(found["first"]), int(found["last"] or found["first"])
    return max(first, last) <= _HIGHEST_PORT and (found["sign"] != "-" or first <= last)


def _ranges(document: Document, name: Names) -> Iterator[str]:
    ranges = dict(_RANGES)
    if document["mode"] == "nftables":
        ranges["nftables.masqueradeBit"] = (0, 31)
    for path, (low, high) in ranges.items():
        if not low <= get(document, path) <= high:
            yield f"{name(path)}: {get(document, path)} is not between {low} and {high}"
    if not math.isfinite(document["clientConnection"]["qps"]):
        yield f"{name('clientConnection.qps')}: it has to be a number"


def _addresses(document: Document, name: Names) -> Iterator[str]:
    if addresses.parse_address(document["bindAddress"]) is None:
        yield f"{name('bindAddress')}: {shown(document['bindAddress'])} is not an IP address"
    for path in ("healthzBindAddress", "metricsBindAddress"):
        text = document[path]
        parts = split_host_port(text)
        if text and (parts is None or not _is_address(parts[0]) or not _is_port(parts[1])):
            yield f"{name(path)}: {shown(text)} is not {_IPS}"


def _is_address(text: str) -> bool:
    return addresses.parse_address(text) is not None


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and 1 <= int(text) <= _HIGHEST_PORT


def _networks(document: Document, name: Names) -> Iterator[str]:
    yield from _said_by(lambda: parse_nodeport_addresses(name("nodePortAddresses"), (*document["nodePortAddresses"],)))
    if document["mode"] == "ipvs":
        yield from _said_by(lambda: parse_networks(name("ipvs.excludeCIDRs"), (*document["ipvs"]["excludeCIDRs"],)))


def _pods(document: Document, name: Names) -> Iterator[str]:
    mode, pods = document["detectLocalMode"], document["detectLocal"]
    if mode not in get_args(DetectLocal):
        yield f"{name('detectLocalMode')}: {shown(mode)} is not {listing(get_args(DetectLocal))}"
        return
    names = (
        name.short("detectLocalMode"),
        name("detectLocal.bridgeInterface"),
        name("detectLocal.interfaceNamePrefix"),
    )
    yield from _said_by(
        lambda: parse_detect_local(mode, pods["bridgeInterface"], pods["interfaceNamePrefix"], flags=names)
    )
    if mode == "ClusterCIDR":
        yield from _said_by(lambda: parse_cluster_cidrs(name("clusterCIDR"), (document["clusterCIDR"],)))


def _said_by(parse: Callable[[], object]) -> Iterator[str]:
    try:
        parse()
    except UsageError as error:
        yield str(error)


def _gates(document: Document, name: Names) -> Iterator[str]:
    for gate, on in document["featureGates"].items():
        known = GATES.get(gate)
        if known is None:
            yield f"{name('featureGates')}: no feature gate is called {plain(gate)}"
        elif known.locked and on is not known.here:
            yield f"{name('featureGates')}: {gate} cannot be {shown(on)}: {known.note}"


def _refused(document: Document, name: Names) -> Iterator[str]:
    for path, row in FIELDS.items():
        if row.verdict is Verdict.REFUSED and get(document, path) != row.default:
            yield f"{name(path)}: {shown(get(document, path))} is refused: {row.note}"
