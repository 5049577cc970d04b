"""Captures: what iptables-save, ipset, ipvsadm and nft print on a node, parsed into rule sets."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce

from msgspec import Struct

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret import iptables, ipvs, nftables
from knft.interpret.compare.edit import join_rule_sets
from knft.interpret.iptables.duplicates import without_duplicate_tables
from knft.interpret.ranges import Ranges, ranges
from knft.interpret.rules import RuleSet, VirtualServer

Rules = dict[IpVersion, RuleSet]
"""One rule set for each IP version."""

SAVE_PROGRAMS: dict[IpVersion, str] = {4: "iptables-save", 6: "ip6tables-save"}
VERSIONS: tuple[IpVersion, ...] = (4, 6)
_IPVS_SETS = frozenset(("ipset KUBE-CLUSTER-IP", "ipset KUBE-6-CLUSTER-IP"))
_CONTENT_LINE = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)


class Capture(Struct, frozen=True):
    """The output of a node's tools: ``rules`` of iptables-save, ``sets`` of ipset, ``servers`` of ipvsadm.

    ``ipvs_addresses`` holds the addresses of kube-ipvs0, with prefix lengths. None means unknown: the device then has
    the address of every virtual server, as kube-proxy ensures. ``source_names`` maps the name of a tool (iptables-save,
    ip6tables-save, ipset, ipvsadm, nft) to the flag, file or command that messages name.
    """

    rules: dict[IpVersion, str] = {}
    sets: str = ""
    servers: str = ""
    nftables: bytes | None = None
    ipvs_addresses: tuple[str, ...] | None = None
    source_names: dict[str, str] = {}
    is_from_files: bool = False
    """Whether the user named the files. An empty file is then an error: most likely the tool did not run as root."""


def read_capture(capture: Capture) -> Rules:
    """Return the rule sets of the IP versions that a capture covers; raise CaptureError naming the file or tool."""
    found = {version: list(_parts(capture, version)) for version in VERSIONS}
    return {version: reduce(join_rule_sets, parts) for version, parts in found.items() if parts}


def _parts(capture: Capture, version: IpVersion) -> Iterator[RuleSet]:
    saved = _read_iptables(capture, version) if version in capture.rules else None
    if saved is not None:
        yield saved
        with _prefix_errors(capture, "ipvsadm"):
            servers = ipvs.read(capture.servers, version)
        ipvs_addresses = _ipvs_addresses(capture.ipvs_addresses, version, servers)
        yield RuleSet(version=version, servers=servers, ipvs_addresses=ipvs_addresses)
    if capture.nftables is not None:
        with _prefix_errors(capture, "nft"):
            listed = nftables.read(capture.nftables, version)
        yield listed if saved is None else without_duplicate_tables(listed, saved)


def _read_iptables(capture: Capture, version: IpVersion) -> RuleSet:
    with _prefix_errors(capture, "ipset"):
        sets = iptables.read_sets(capture.sets)
    with _prefix_errors(capture, SAVE_PROGRAMS[version]):
        if capture.is_from_files:
            _reject_empty(capture.rules[version])
        rules = iptables.read(capture.rules[version], version, sets)
        if capture.is_from_files and not capture.servers.strip() and _is_ipvs_mode(rules):
            msg = "these are rules of kube-proxy's mode ipvs; add its virtual servers with --ipvsadm-save"
            raise CaptureError(msg)
    return rules


def _reject_empty(save: str) -> None:
    """Raise CaptureError if a capture holds comments at most; iptables.read rejects other text without a table."""
    if not _CONTENT_LINE.search(save) and "# Table `" not in save:
        msg = "the capture is empty; run the tool as root"
        raise CaptureError(msg)


def _is_ipvs_mode(rules: RuleSet) -> bool:
    """Return whether the rules are those of kube-proxy's mode ipvs."""
    return "filter KUBE-IPVS-FILTER" in rules.chains or not _IPVS_SETS.isdisjoint(rules.collections)


def _ipvs_addresses(networks: Iterable[str] | None, version: IpVersion, servers: Iterable[VirtualServer]) -> Ranges:
    if networks is None:
        return ranges((server.address, server.address) for server in servers)
    addresses = (ipaddress.ip_interface(network).ip for network in networks)
    return ranges((int(address), int(address)) for address in addresses if address.version == version)


@contextmanager
def _prefix_errors(capture: Capture, program: str) -> Iterator[None]:
    """Put the name of a tool's output in front of a CaptureError's message."""
    try:
        yield
    except CaptureError as error:
        msg = f"{capture.source_names.get(program, program)}: {error}"
        raise CaptureError(msg) from error
