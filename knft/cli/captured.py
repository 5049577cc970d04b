"""Captured rule sets: the files that operators name, and this machine's own."""

import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

from msgspec import Struct

from knft.errors import CaptureError, SourceError
from knft.interpret import iptables, ipvs, nftables
from knft.interpret.compare.edit import joined
from knft.interpret.ranges import Ranges, ranges
from knft.interpret.rules import IpVersion, RuleSet
from knft.source.files import shown_path

SAVE_PROGRAMS: dict[IpVersion, str] = {4: "iptables-save", 6: "ip6tables-save"}
VERSIONS: tuple[IpVersion, ...] = (4, 6)


class Texts(Struct, frozen=True):
    """What the tools print on a node, None where nobody has asked them; ``bound`` are networks on kube-proxy's device.

    ``names`` says for messages where each comes from, by the program that printed it: iptables-save, ip6tables-save,
    ipvsadm, nft.
    """

    rules: dict[IpVersion, str] = {}
    sets: str = ""
    servers: str = ""
    nftables: bytes | None = None
    bound: tuple[str, ...] = ()
    names: dict[str, str] = {}


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
    if version in texts.rules:
        with _naming(texts, SAVE_PROGRAMS[version]):
            yield iptables.read(texts.rules[version], version, texts.sets)
        with _naming(texts, "ipvsadm"):
            servers = ipvs.servers(texts.servers, version)
        yield RuleSet(version=version, servers=servers, bound=_bound(texts.bound, version))
    if texts.nftables is not None:
        with _naming(texts, "nft"):
            yield nftables.read(texts.nftables, version)


def _bound(networks: Iterable[str], version: IpVersion) -> Ranges:
    addresses = (ipaddress.ip_interface(network).ip for network in networks)
    return ranges((int(address), int(address)) for address in addresses if address.version == version)


@contextmanager
def _naming(texts: Texts, program: str) -> Iterator[None]:
    """Put where a text comes from in front of what is wrong with it."""
    try:
        yield
    except CaptureError as error:
        msg = f"{texts.names.get(program, program)}: {error}"
        raise CaptureError(msg) from error
