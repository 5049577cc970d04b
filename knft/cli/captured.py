"""Captured rule sets: the files that operators name, and this machine's own."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec import Struct

from knft.errors import CaptureError, SourceError, UsageError
from knft.interpret import iptables, ipvs, nftables
from knft.interpret.compare.edit import joined
from knft.interpret.iptables.listed import without_saved
from knft.interpret.ranges import Ranges, ranges
from knft.interpret.rules import IpVersion, RuleSet, Server
from knft.source.files import shown_path

SAVE_PROGRAMS: dict[IpVersion, str] = {4: "iptables-save", 6: "ip6tables-save"}
VERSIONS: tuple[IpVersion, ...] = (4, 6)
_OF_IPVS = frozenset(("ipset KUBE-CLUSTER-IP", "ipset KUBE-6-CLUSTER-IP"))
_SAYS_SOMETHING = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)


class Texts(Struct, frozen=True):
    """What the tools print on a node, None where nobody has asked them.

    ``bound`` are the networks on kube-proxy's device; where they are not known it has, as kube-proxy sees to it, the
    address of every virtual server.

    ``names`` says for messages where each comes from, by the program that printed it: iptables-save, ip6tables-save,
    ipset, ipvsadm, nft.
    """

    rules: dict[IpVersion, str] = {}
    sets: str = ""
    servers: str = ""
    nftables: bytes | None = None
    bound: tuple[str, ...] | None = None
    names: dict[str, str] = {}
    are_files: bool = False
    """Whether somebody has named them as captures: then one that says nothing was not taken as it should have been."""


def read_file(flag: str, path: str) -> bytes:
    """Return a file's content; raise SourceError naming flag and file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        msg = f"{flag}: {shown_path(path)}: {error.strerror}"
        raise SourceError(msg) from error


def as_text(flag: str, path: str) -> str:
    """Return a file's text; raise SourceError or CaptureError naming flag and file."""
    content = read_file(flag, path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        msg = f"{flag}: {shown_path(path)}: it is not text (byte {error.start + 1} is no UTF-8)"
        raise CaptureError(msg) from error


def rule_sets(texts: Texts) -> dict[IpVersion, RuleSet]:
    """Return the rule sets of the families that the texts are about; raise CaptureError naming what cannot be read."""
    found = {version: list(_parts(texts, version)) for version in VERSIONS}
    return {version: reduce(joined, parts) for version, parts in found.items() if parts}


def _parts(texts: Texts, version: IpVersion) -> Iterator[RuleSet]:
    saved = _of_iptables(texts, version) if version in texts.rules else None
    if saved is not None:
        yield saved
        with _naming(texts, "ipvsadm"):
            servers = ipvs.servers(texts.servers, version)
        yield RuleSet(version=version, servers=servers, bound=_bound(texts.bound, version, servers))
    if texts.nftables is not None:
        with _naming(texts, "nft"):
            listed = nftables.read(texts.nftables, version)
        yield listed if saved is None else without_saved(listed, saved)


def _of_iptables(texts: Texts, version: IpVersion) -> RuleSet:
    with _naming(texts, "ipset"):
        sets = iptables.read_sets(texts.sets)
    with _naming(texts, SAVE_PROGRAMS[version]):
        if texts.are_files:
            _refuse_emptiness(texts.rules[version])
        rules = iptables.read(texts.rules[version], version, sets)
        if texts.are_files and not texts.servers.strip() and _needs_servers(rules):
            msg = "these are the rules of mode ipvs: its virtual servers are needed too, give --ipvsadm-save"
            raise CaptureError(msg)
    return rules


def _refuse_emptiness(save: str) -> None:
    """Raise CaptureError where a capture has remarks at most; without a table, all else is refused by its reader."""
    if not _SAYS_SOMETHING.search(save) and "# Table `" not in save:
        msg = "it is empty: was it taken as root?"
        raise CaptureError(msg)


def _needs_servers(rules: RuleSet) -> bool:
    """Tell whether rules are such as kube-proxy makes beside virtual servers."""
    return "filter KUBE-IPVS-FILTER" in rules.chains or not _OF_IPVS.isdisjoint(rules.collections)


def _bound(networks: Iterable[str] | None, version: IpVersion, servers: Iterable[Server]) -> Ranges:
    if networks is None:
        return ranges((server.address, server.address) for server in servers)
    addresses = (ipaddress.ip_interface(network).ip for network in networks)
    return ranges((int(address), int(address)) for address in addresses if address.version == version)


def captured_texts(options: dict[str, Any]) -> Texts | None:
    """Return the captures that are named on the command line, None where none is.

    Raises UsageError, SourceError or CaptureError, naming flag and file.
    """
    saves: dict[IpVersion, str] = {4: options["iptables_save"], 6: options["ip6tables_save"]}
    given = {version: path for version, path in saves.items() if path is not None}
    nft = options["nft_json"]
    for flag in ("ipset_save", "ipvsadm_save"):
        if options[flag] is not None and not given:
            msg = f"--{flag.replace('_', '-')}: it says nothing without --iptables-save or --ip6tables-save"
            raise UsageError(msg)
    if not given and nft is None:
        return None
    names = {SAVE_PROGRAMS[version]: f"--{SAVE_PROGRAMS[version]} {path}" for version, path in given.items()}
    others = {
        "ipset": ("--ipset-save", options["ipset_save"]),
        "ipvsadm": ("--ipvsadm-save", options["ipvsadm_save"]),
        "nft": ("--nft-json", nft),
    }
    return Texts(
        rules={version: as_text(f"--{SAVE_PROGRAMS[version]}", path) for version, path in given.items()},
        sets="" if options["ipset_save"] is None else as_text("--ipset-save", options["ipset_save"]),
        servers="" if options["ipvsadm_save"] is None else as_text("--ipvsadm-save", options["ipvsadm_save"]),
        nftables=None if nft is None else read_file("--nft-json", nft),
        names=names | {program: f"{flag} {path}" for program, (flag, path) in others.items() if path is not None},
        are_files=True,
    )


@contextmanager
def _naming(texts: Texts, program: str) -> Iterator[None]:
    """Put where a text comes from in front of what is wrong with it."""
    try:
        yield
    except CaptureError as error:
        msg = f"{texts.names.get(program, program)}: {error}"
        raise CaptureError(msg) from error
