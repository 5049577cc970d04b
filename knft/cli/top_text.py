"""The text of ``knft top``: rates between two answers of the running knft, selected, sorted, and laid out."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

from msgspec import Struct, field, structs

from knft.cli.text_layout import format_seconds
from knft.control.messages import Counters, FrontendCounters, SyncTotals
from knft.counts import format_count
from knft.present.formatting import escape_invisible

Sorting = Literal["rate", "refused", "total", "name"]
SORTINGS: tuple[Sorting, ...] = ("rate", "refused", "total", "name")
Level = Literal["service", "frontend"]

NOT_COUNTING = "knft counts no connections: start it with --service-counters"
_GAP = "  "
_MIN_NAME = 12
_ELLIPSIS = "…"


class Selection(Struct, frozen=True):
    """Which rows to print, and in which order: rows that contain the text ``filter``, of Services or of frontends."""

    level: Level = "service"
    sorting: Sorting = "rate"
    filter: str = ""


class SyncRate(Struct, frozen=True):
    """The syncs of a family in a second, and the failed ones; mean times in seconds, None without a sync or change."""

    family: str
    syncs: float
    failures: float
    mean_seconds: float | None
    mean_latency: float | None


class Row(Struct, frozen=True):
    """Connections to a Service port or to one of its frontends, in a second and in all.

    ``frontend`` is empty in the row of a Service port.
    """

    service: str
    frontend: str
    new: float
    refused: float
    total: int


class Top(Struct, frozen=True):
    """The rates between two answers. ``seconds`` is the time between the readings of the connections, 0 without one."""

    is_counting: bool
    seconds: float
    syncs: tuple[SyncRate, ...]
    services: tuple[Row, ...] = field(default=())
    frontends: tuple[Row, ...] = field(default=())
    node: str = ""


def rates(before: Counters, after: Counters) -> Top:
    """Return the rates between two answers of the same process."""
    asked = after.asked - before.asked
    syncs = tuple(
        _sync_rate(family, before.syncs.get(family, SyncTotals()), totals, asked)
        for family, totals in after.syncs.items()
    )
    if before.read is None or after.read is None or after.read <= before.read:
        return Top(after.is_counting, 0.0, syncs, node=after.node)
    seconds = after.read - before.read
    earlier = {_identity(each): each for each in before.frontends}
    frontends = tuple(_row(each, earlier.get(_identity(each)), seconds) for each in after.frontends)
    return Top(after.is_counting, seconds, syncs, tuple(_by_service(frontends)), frontends, after.node)


def _sync_rate(family: str, before: SyncTotals, after: SyncTotals, seconds: float) -> SyncRate:
    syncs, latencies = after.syncs - before.syncs, after.latencies - before.latencies
    return SyncRate(
        family,
        syncs / seconds if seconds else 0.0,
        (after.failures - before.failures) / seconds if seconds else 0.0,
        (after.seconds - before.seconds) / syncs if syncs else None,
        (after.latency_seconds - before.latency_seconds) / latencies if latencies else None,
    )


def _identity(found: FrontendCounters) -> tuple[str, str, str, str, str, int, str]:
    where = (found.address, found.number, found.family)
    return (found.namespace, found.service, found.port, found.protocol, *where)


def _row(found: FrontendCounters, before: FrontendCounters | None, seconds: float) -> Row:
    # A counter that is smaller began again from 0.
    earlier_new, earlier_refused = (before.new, before.refused) if before is not None else (0, 0)
    if found.new < earlier_new or found.refused < earlier_refused:
        earlier_new = earlier_refused = 0
    port = f":{found.port}" if found.port else ""
    return Row(
        f"{found.namespace}/{found.service}{port}",
        _frontend_text(found),
        (found.new - earlier_new) / seconds,
        (found.refused - earlier_refused) / seconds,
        found.new,
    )


def _frontend_text(found: FrontendCounters) -> str:
    address = f"[{found.address}]" if ":" in found.address else found.address or f"NodePort {found.family}"
    return f"{address}:{found.number}/{found.protocol.lower()}"


def _by_service(frontends: Iterable[Row]) -> Iterator[Row]:
    sums: dict[str, list[Row]] = {}
    for row in frontends:
        sums.setdefault(row.service, []).append(row)
    for service, rows in sums.items():
        yield Row(
            service,
            "",
            sum(row.new for row in rows),
            sum(row.refused for row in rows),
            sum(row.total for row in rows),
        )


def selected(top: Top, selection: Selection) -> list[Row]:
    """Return the selected rows in order; rows that are equal in it are sorted by name."""
    rows = top.frontends if selection.level == "frontend" else top.services
    wanted = selection.filter.casefold()
    found = [row for row in rows if wanted in f"{row.service} {row.frontend}".casefold()]
    return sorted(found, key=lambda row: (-_sorted_number(row, selection.sorting), row.service, row.frontend))


def selected_rows(top: Top, selection: Selection) -> Top:
    """Return the rates with the selected rows of both levels, in order."""
    services, frontends = (tuple(selected(top, structs.replace(selection, level=level))) for level in get_args(Level))
    return structs.replace(top, services=services, frontends=frontends)


def _sorted_number(row: Row, sorting: Sorting) -> float:
    match sorting:
        case "rate":
            return row.new
        case "refused":
            return row.refused
        case "total":
            return row.total
        case "name":
            return 0.0


def format_top(top: Top, selection: Selection, width: int | None = None, height: int | None = None) -> str:
    """Return the node, the syncs and the table of connections, at most ``height`` lines of ``width`` columns.

    Long names are shortened, so that the numbers beside them are visible.
    """
    node = [f"node {escape_invisible(top.node)}"] if top.node else []
    head = [*node, *_sync_lines(top.syncs), ""]
    room = None if height is None else height - len(head)
    lines = [*head, *_shown(list(_connection_lines(top, selection, width)), room)][:height]
    return "".join(f"{(line if width is None else line[:width]).rstrip()}\n" for line in lines)


def _shown(lines: list[str], room: int | None) -> list[str]:
    """Return the lines for which there is room; if rows are left out, the last line says how many."""
    if room is None or len(lines) <= room:
        return lines
    visible = max(room - 1, 1)  # the names of the columns
    return [*lines[:visible], f"{format_count(len(lines) - visible, 'more row')} below"]


def _sync_lines(syncs: Sequence[SyncRate]) -> Iterator[str]:
    rows = [
        (
            rate.family,
            f"{rate.syncs:.1f}",
            f"{rate.failures:.1f}",
            format_seconds(rate.mean_seconds) if rate.mean_seconds is not None else "-",
            format_seconds(rate.mean_latency) if rate.mean_latency is not None else "-",
        )
        for rate in syncs
    ]
    return _table(("FAMILY", "SYNCS/S", "FAILED/S", "DURATION", "LATENCY"), rows, left=1)


def _connection_lines(top: Top, selection: Selection, width: int | None) -> Iterator[str]:
    if not top.is_counting:
        yield NOT_COUNTING
        return
    rows = selected(top, selection)
    if not rows:
        yield f"no connections to a Service with {selection.filter!r}" if selection.filter else "no connections yet"
        return
    by_frontend = selection.level == "frontend"
    cells = [
        (row.service, *([row.frontend] if by_frontend else []), f"{row.new:.1f}", f"{row.refused:.1f}", str(row.total))
        for row in rows
    ]
    names = ("SERVICE", *(["FRONTEND"] if by_frontend else []), "NEW/S", "REFUSED/S", "TOTAL")
    yield from _table(names, cells, left=2 if by_frontend else 1, width=width)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], left: int, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a table; the first ``left`` columns are texts, the others numbers.

    If the table is wider than ``width``, the texts are shortened.
    """
    cells = [tuple(names), *(tuple(map(escape_invisible, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        _fit(widths, left, sum(widths) + len(_GAP) * (len(widths) - 1) - width)
    for row in cells:
        yield _GAP.join(
            _shortened(cell, size).ljust(size) if column < left else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        )


def _fit(widths: list[int], left: int, excess: int) -> None:
    """Make the widest of the first columns narrower, until the table is ``excess`` columns narrower."""
    for _ in range(excess):
        widest = max(range(left), key=widths.__getitem__)
        if widths[widest] <= _MIN_NAME:
            return
        widths[widest] -= 1


def _shortened(name: str, size: int) -> str:
    """Return a name with an ellipsis in place of its middle: names often differ at their end."""
    if len(name) <= size:
        return name
    end = (size - len(_ELLIPSIS)) // 2
    return f"{name[: size - len(_ELLIPSIS) - end]}{_ELLIPSIS}{name[len(name) - end :]}"
