"""Reads this machine's rules, sets and virtual servers as text, without changing rules or loading kernel modules."""

import re
from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from knft.errors import CaptureError, KernelError
from knft.families import Family, IpVersion
from knft.kernel import ipvs, xtables
from knft.kernel.addresses import local_addresses
from knft.kernel.features import may_have_nf_tables
from knft.kernel.listings import list_own_table_json, list_table_json
from knft.kernel.process import WorkerProcess
from knft.kernel.table_flags import table_flags
from knft.leftovers.names import DEVICE, DEVICE_KIND, TABLES
from knft.render.names import TABLE

Key = TypeVar("Key")

READ_TIMEOUT_SECONDS = 60.0
"""Time limit of each program."""
_HEADER_LINES = 3
"""Lines of /proc/net/ip_vs without any virtual server."""
_XTABLES_TABLES = frozenset(
    (family.nft, name) for family in Family for name in ("filter", "nat", "mangle", "raw", "security")
)
"""nftables tables that iptables-nft creates; iptables-save prints them."""
_COUNTERS = re.compile(r"\[\d+:\d+\]|^#.*$", re.MULTILINE)
_CONNECTIONS = re.compile(r"(?<! ) ++\d++ ++\d++ *+$", re.MULTILINE)
"""The connection counts at the end of a real server's line in /proc/net/ip_vs."""
_JSON_COUNTERS = re.compile(r'"(?:packets|bytes|expires)": ?\d+')


class MachineState(Struct, frozen=True):
    """The kernel's rules, sets, virtual servers and addresses at one time.

    ``saved_rules`` holds the output of iptables-save by backend, ``kube_proxy_tables`` and ``knft_tables`` the nftables
    tables of kube-proxy and knft as JSON, ``ipvs_addresses`` the addresses of kube-proxy's IPVS device, ``addresses``
    those of all interfaces.
    ``unread_tables`` names nftables tables of other programs, which were not read, ``missing_programs`` tools
    that are not installed.
    """

    saved_rules: dict[str, str]
    ipsets: str
    virtual_servers: str
    ipvs_addresses: tuple[str, ...]
    kube_proxy_tables: dict[IpVersion, str]
    knft_tables: dict[IpVersion, str]
    addresses: frozenset[str]
    unread_tables: tuple[str, ...] = ()
    missing_programs: tuple[str, ...] = ()

    @property
    def without_counters(self) -> "MachineState":
        """The same state without values that packets change: counters, and expiry times of affinity entries."""
        return MachineState(
            _strip_counters(_COUNTERS, self.saved_rules),
            _COUNTERS.sub("", self.ipsets),
            self.virtual_servers,
            self.ipvs_addresses,
            _strip_counters(_JSON_COUNTERS, self.kube_proxy_tables),
            _strip_counters(_JSON_COUNTERS, self.knft_tables),
            self.addresses,
            self.unread_tables,
            self.missing_programs,
        )


def _strip_counters(counted: re.Pattern[str], texts: dict[Key, str]) -> dict[Key, str]:
    return {key: counted.sub("", text) for key, text in texts.items()}


def read_machine(library: WorkerProcess) -> MachineState:
    """Return the kernel's rules, sets, virtual servers and addresses; raise CaptureError."""
    try:
        return _read_all(library)
    except KernelError as error:
        msg = f"cannot read this machine's rules: {error}"
        raise CaptureError(msg) from error


def read_polled_state(*, with_sets: bool) -> tuple[str, ...]:
    """Return the state whose changes send no netlink notification, as texts without counters; raise CaptureError.

    ``with_sets`` includes ipsets; callers set it if rules name some.
    """
    try:
        legacy = [backend for backend in xtables.backends() if backend.name.endswith("-legacy")]
        saved = [_COUNTERS.sub("", xtables.save(backend, READ_TIMEOUT_SECONDS)) for backend in legacy]
        sets = (xtables.save_sets(READ_TIMEOUT_SECONDS) or "") if with_sets else ""
        return (*saved, _COUNTERS.sub("", sets), _CONNECTIONS.sub("", ipvs.read_servers() or ""))
    except KernelError as error:
        msg = f"cannot read this machine's rules: {error}"
        raise CaptureError(msg) from error


def read_knft_tables(library: WorkerProcess) -> tuple[dict[IpVersion, str], frozenset[str]]:
    """Return knft's tables as JSON, and the machine's addresses; raise CaptureError."""
    try:
        return (_own_tables(library) if may_have_nf_tables() else {}), local_addresses()
    except KernelError as error:
        msg = f"cannot read knft's tables: {error}"
        raise CaptureError(msg) from error


def _read_all(library: WorkerProcess) -> MachineState:
    nf_tables = may_have_nf_tables()
    missing: list[str] = []
    saved = _saved(missing, nf_tables=nf_tables)
    device = ipvs.read_device(DEVICE)
    return MachineState(
        saved_rules=saved,
        ipsets=_sets(saved, missing),
        virtual_servers=_servers(missing),
        ipvs_addresses=tuple(sorted(device.addresses)) if device is not None and device.kind == DEVICE_KIND else (),
        kube_proxy_tables=_kube_proxy_tables(library) if nf_tables else {},
        knft_tables=_own_tables(library) if nf_tables else {},
        addresses=local_addresses(),
        unread_tables=_unread_tables(saved) if nf_tables else (),
        missing_programs=tuple(missing),
    )


def _saved(missing: list[str], *, nf_tables: bool) -> dict[str, str]:
    """Return the rules of each backend. Backends in nf_tables are skipped if it is not loaded: they would load it."""
    backends = xtables.backends()
    if not backends:
        missing.append("iptables")
    kinds = (backend for backend in backends if nf_tables or backend.name.endswith("-legacy"))
    return {backend.name: xtables.save(backend, READ_TIMEOUT_SECONDS) for backend in kinds}


def _sets(saved: dict[str, str], missing: list[str]) -> str:
    if not any("--match-set" in text for text in saved.values()):
        return ""
    found = xtables.save_sets(READ_TIMEOUT_SECONDS)
    if found is None:
        missing.append("ipset")
    return found or ""


def _servers(missing: list[str]) -> str:
    there = ipvs.read_servers()
    if there is None or len(there.splitlines()) <= _HEADER_LINES:
        return ""
    found = ipvs.save_servers(READ_TIMEOUT_SECONDS)
    if found is None:
        missing.append("ipvsadm")
    return found or ""


def _kube_proxy_tables(library: WorkerProcess) -> dict[IpVersion, str]:
    found = {family.version: list_table_json(library, family, TABLES[0][1]) for family in Family}
    return {version: text for version, text in found.items() if text is not None}


def _own_tables(library: WorkerProcess) -> dict[IpVersion, str]:
    found = {family.version: list_own_table_json(library, family, TABLE) for family in Family}
    return {version: text for version, text in found.items() if text is not None}


def _unread_tables(backends: Iterable[str]) -> tuple[str, ...]:
    """Return the nftables tables that no program or listing of knft reads, if these backends of iptables are read.

    Raises KernelError.
    """
    read_tables = {*TABLES, *((family.nft, TABLE) for family in Family)}
    read_tables |= _XTABLES_TABLES if any(not name.endswith("-legacy") for name in backends) else set()
    return tuple(sorted(" ".join(table) for table in table_flags().keys() - read_tables))
