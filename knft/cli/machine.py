"""What this machine has in force, read as text: nothing is changed, made or loaded by looking."""

import re
from typing import TypeVar

from msgspec import Struct

from knft.errors import CaptureError, KernelError
from knft.interpret.rules import IpVersion
from knft.kernel import ipvs, xtables
from knft.kernel.addresses import local_addresses
from knft.kernel.features import has_nf_tables
from knft.kernel.listings import listed
from knft.kernel.process import LibraryProcess
from knft.kernel.tables import table_flags
from knft.nft.objects import Family
from knft.render.names import TABLE
from knft.takeover.names import DEVICE, DEVICE_KIND, TABLES

Key = TypeVar("Key")

LOOK_SECONDS = 60.0
"""How long each program may take."""
_HEADINGS = 3
"""So many lines of /proc/net/ip_vs are there without any virtual server."""
_FAMILIES: dict[IpVersion, Family] = {4: "ip", 6: "ip6"}
_OF_XTABLES = frozenset(
    (family, name) for family in _FAMILIES.values() for name in ("filter", "nat", "mangle", "raw", "security")
)
"""Tables that iptables-nft makes, and iptables-save shows."""
_COUNTED = re.compile(r"\[\d+:\d+\]|^#.*$", re.MULTILINE)
_CONNECTIONS = re.compile(r" +\d+ +\d+ *$", re.MULTILINE)
"""What ends the lines of real servers in /proc/net/ip_vs."""
_COUNTED_JSON = re.compile(r'"(?:packets|bytes|expires)": ?\d+')


class Machine(Struct, frozen=True):
    """One look at the machine.

    ``saved`` are the rules of iptables by backend, ``kube_proxy`` and ``knft`` their tables of nftables as JSON,
    ``device`` the addresses of kube-proxy's link for IPVS. ``unread`` are the names of others' tables of nftables,
    ``absent`` the programs that are missed here.
    """

    saved: dict[str, str]
    sets: str
    servers: str
    device: tuple[str, ...]
    kube_proxy: dict[IpVersion, str]
    knft: dict[IpVersion, str]
    addresses: frozenset[str]
    unread: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def likeness(self) -> "Machine":
        """The same without what packets change: counters, and when a client is forgotten."""
        return Machine(
            _each(_COUNTED, self.saved),
            _COUNTED.sub("", self.sets),
            self.servers,
            self.device,
            _each(_COUNTED_JSON, self.kube_proxy),
            _each(_COUNTED_JSON, self.knft),
            self.addresses,
            self.unread,
            self.absent,
        )


def _each(counted: re.Pattern[str], texts: dict[Key, str]) -> dict[Key, str]:
    return {key: counted.sub("", text) for key, text in texts.items()}


def look(library: LibraryProcess) -> Machine:
    """Read everything once; raise CaptureError where something cannot be read that is there."""
    try:
        return _look(library)
    except KernelError as error:
        msg = f"this machine's rules cannot be read: {error}"
        raise CaptureError(msg) from error


def unnotified(*, with_sets: bool) -> tuple[str, ...]:
    """Return what can change without a notification, apart from counters; raise CaptureError.

    Sets are to be asked for where rules name some.
    """
    try:
        legacy = [backend for backend in xtables.backends() if backend.name.endswith("-legacy")]
        saved = [_COUNTED.sub("", xtables.save(backend, LOOK_SECONDS)) for backend in legacy]
        sets = (xtables.save_sets(LOOK_SECONDS) or "") if with_sets else ""
        return (*saved, _COUNTED.sub("", sets), _CONNECTIONS.sub("", ipvs.read_servers() or ""))
    except KernelError as error:
        msg = f"this machine's rules cannot be read: {error}"
        raise CaptureError(msg) from error


def look_at_knft(library: LibraryProcess) -> tuple[dict[IpVersion, str], frozenset[str]]:
    """Return knft's tables alone, and the machine's addresses; raise CaptureError."""
    try:
        return (_tables(library, TABLE) if has_nf_tables() else {}), local_addresses()
    except KernelError as error:
        msg = f"knft's tables cannot be read: {error}"
        raise CaptureError(msg) from error


def _look(library: LibraryProcess) -> Machine:
    nf_tables = has_nf_tables()
    absent: list[str] = []
    saved = _saved(absent, nf_tables=nf_tables)
    device = ipvs.read_device(DEVICE)
    return Machine(
        saved=saved,
        sets=_sets(saved, absent),
        servers=_servers(absent),
        device=tuple(sorted(device.addresses)) if device is not None and device.kind == DEVICE_KIND else (),
        kube_proxy=_tables(library, TABLES[0][1]) if nf_tables else {},
        knft=_tables(library, TABLE) if nf_tables else {},
        addresses=local_addresses(),
        unread=_unread(saved) if nf_tables else (),
        absent=tuple(absent),
    )


def _saved(absent: list[str], *, nf_tables: bool) -> dict[str, str]:
    """Return what each backend has; one that lives in nf_tables would load it."""
    backends = xtables.backends()
    if not backends:
        absent.append("iptables")
    kinds = (backend for backend in backends if nf_tables or backend.name.endswith("-legacy"))
    return {backend.name: xtables.save(backend, LOOK_SECONDS) for backend in kinds}


def _sets(saved: dict[str, str], absent: list[str]) -> str:
    if not any("--match-set" in text for text in saved.values()):
        return ""
    found = xtables.save_sets(LOOK_SECONDS)
    if found is None:
        absent.append("ipset")
    return found or ""


def _servers(absent: list[str]) -> str:
    there = ipvs.read_servers()
    if there is None or len(there.splitlines()) <= _HEADINGS:
        return ""
    found = ipvs.save_servers(LOOK_SECONDS)
    if found is None:
        absent.append("ipvsadm")
    return found or ""


def _tables(library: LibraryProcess, name: str) -> dict[IpVersion, str]:
    found = {version: listed(library, family, name) for version, family in _FAMILIES.items()}
    return {version: text for version, text in found.items() if text is not None}


def _unread(saved: dict[str, str]) -> tuple[str, ...]:
    own = {*TABLES, *((family, TABLE) for family in _FAMILIES.values())}
    shown = own | (_OF_XTABLES if any(not name.endswith("-legacy") for name in saved) else set())
    return tuple(sorted(" ".join(table) for table in table_flags().keys() - shown))
