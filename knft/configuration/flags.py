"""What flags do to a document, in kube-proxy's order (I.3)."""

from collections.abc import Callable, Mapping
from typing import Any

from knft.configuration.conversion import section_of
from knft.configuration.document import HEALTHZ_PORT, METRICS_PORT, Document, defaults, get, put, with_port
from knft.configuration.rows import NAMES_OF_SECTIONS, Kind, Row
from knft.configuration.table import FIELDS, FLAGS
from knft.errors import UsageError
from knft.source.words import shown

Given = Mapping[str, Any]
"""The flags that somebody has given, by name, ``-v`` as ``--v``; lists are tuples of texts."""

Origins = dict[str, str]
"""The flag that set a field, by the field's path."""

_OWN = {"--min-sync-period": "minSyncPeriod", "--sync-period": "syncPeriod", "--masquerade-bit": "masqueradeBit"}
_IN_SECTIONS = {
    "--iptables-sync-period": "syncPeriod",
    "--iptables-min-sync-period": "minSyncPeriod",
    "--ipvs-sync-period": "syncPeriod",
    "--ipvs-min-sync-period": "minSyncPeriod",
    "--masquerade-all": "masqueradeAll",
}
_PORTS = (
    ("--healthz-port", "healthzBindAddress", HEALTHZ_PORT),
    ("--metrics-port", "metricsBindAddress", METRICS_PORT),
)
_EMPTY_IS_UNSET = ("clientConnection.qps", "clientConnection.burst", "detectLocalMode")
"""Where kube-proxy, or its client of the API server, takes an empty flag for none, and fills in the default."""
_TRUTH = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


def from_flags(given: Given, origins: Origins) -> Document:
    """Return what kube-proxy's flags mean where there is no file."""
    document = defaults()
    mode = given.get("--proxy-mode", "")
    if mode == "ipvs":
        # kube-proxy's flags begin with the defaults of mode iptables (I.3).
        put(document, "ipvs.minSyncPeriod", "1s")
    for flag, value in given.items():
        row = FLAGS[flag]
        if not row.field or (flag in _IN_SECTIONS and not _reaches(flag, mode)):
            continue
        path = section_of(mode, _IN_SECTIONS[flag]) if flag in _IN_SECTIONS and mode in NAMES_OF_SECTIONS else row.field
        found = _value(flag, row, value)
        put(document, path, found if found or path not in _EMPTY_IS_UNSET else row.default)
        origins[path] = flag
    for flag, path, port in _PORTS:
        # A file cannot say that nothing is to be served: what is written would mean the default.
        said = port if "--write-config-to" in given else given.get(flag, port)
        put(document, path, with_port(get(document, path), said) if said else "")
    return document


def _reaches(flag: str, mode: str) -> bool:
    """Whether a flag of a mode's periods means anything in ``mode``; --masquerade-all always does."""
    if flag == "--masquerade-all":
        return True
    return flag.startswith("--ipvs-") is (mode == "ipvs")


def without_meaning(given: Given) -> list[str]:
    """Return warnings of flags that another mode would need."""
    mode = given.get("--proxy-mode", "")
    idle = [flag for flag in given if flag in _IN_SECTIONS and not _reaches(flag, mode)]
    if mode == "nftables" and "--iptables-masquerade-bit" in given:
        idle.append("--iptables-masquerade-bit")
    writes = "--write-config-to" in given
    ports = [flag for flag, _, _ in _PORTS if flag in given and writes]
    nowhere = [flag for _, path, _ in _PORTS if writes and given.get(flag := FIELDS[path].flag) == ""]
    return [
        *(f"{flag}: it means nothing in mode {mode or 'iptables'}, as in kube-proxy" for flag in idle),
        *(f"{flag}: it means nothing to --write-config-to, as in kube-proxy" for flag in ports),
        *(f"{flag}: a file cannot say nowhere: what is written, read again, means the default" for flag in nowhere),
    ]


def beside_file(document: Document, given: Given, origins: Origins) -> None:
    """Lay over a document from a file what counts beside it: logging flags, and knft's own."""
    for flag, value in given.items():
        row = FLAGS[flag]
        if row.beside_file and row.field and row.kind is Kind.VMODULE:
            put(document, row.field, [*_value(flag, row, value), *get(document, row.field)])
        elif row.beside_file and row.field and row.field != "hostnameOverride":
            put(document, row.field, _value(flag, row, value))
            origins[row.field] = flag


def own(document: Document, given: Given, origins: Origins) -> None:
    """Lay knft's own flags over a document: they count in every mode, and beside a file."""
    if document["mode"] not in NAMES_OF_SECTIONS:
        return
    for flag, field in _OWN.items():
        if flag in given:
            path = section_of(document["mode"], field)
            put(document, path, given[flag])
            origins[path] = flag


def ignored(given: Given) -> list[str]:
    """Return warnings of the flags that a file puts out of force."""
    return [
        f"{flag}: it is ignored, as by kube-proxy, because --config is given: the file says it all"
        for flag in given
        if not FLAGS[flag].beside_file
    ]


def _value(flag: str, row: Row, value: Any) -> Any:  # noqa: ANN401 - of the row's kind
    parse = _PARSERS.get(row.field) or _PARSERS.get(row.kind)
    return value if parse is None else parse(flag, value)


def texts(_: str, value: tuple[str, ...]) -> list[str]:
    """Return a flag's list: commas divide, and the flag may be given again."""
    return [part.strip() for text in value for part in text.split(",") if part.strip()]


def _gates(flag: str, value: tuple[str, ...]) -> dict[str, bool]:
    found = {}
    for text in texts(flag, value):
        name, _, on = text.partition("=")
        if on.strip().lower() not in _TRUTH:
            msg = f"{flag}: {shown(text)} is not of the form NAME=true or NAME=false"
            raise UsageError(msg)
        found[name.strip()] = _TRUTH[on.strip().lower()]
    return found


def _levels(flag: str, value: tuple[str, ...]) -> list[Document]:
    found = []
    for text in texts(flag, value):
        pattern, _, level = text.partition("=")
        if not pattern or not (level.isascii() and level.isdigit()):
            msg = f"{flag}: {shown(text)} is not of the form PATTERN=LEVEL"
            raise UsageError(msg)
        found.append({"filePattern": pattern, "verbosity": int(level[:9])})
    return found


_PARSERS: dict[str | Kind, Callable[[str, Any], Any]] = {
    Kind.LIST: texts,
    Kind.GATES: _gates,
    Kind.VMODULE: _levels,
    "clusterCIDR": lambda flag, value: ",".join(texts(flag, value)),
}
