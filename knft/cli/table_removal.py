"""Removes a table, or counts its contents, which are removed together with it."""

import json
from collections import Counter

from knft.cli.cleanup_report import CleanupReport, Step
from knft.families import Family
from knft.kernel.listings import list_table_json
from knft.kernel.process import WorkerProcess
from knft.kernel.table import KernelTable


def remove_table(library: WorkerProcess, family: Family, name: str, report: CleanupReport) -> None:
    """Remove a table and report whether it existed, or report its contents in a dry run. Raise KernelError."""
    table = f"table {family.nft} {name}"
    contents: dict[str, int] = {}
    if report.dry_run:
        listing = list_table_json(library, family, name)
        is_found = listing is not None
        contents = _count_contents(listing) if listing is not None else {}
    else:
        is_found = KernelTable(library, family, name).remove()
    if is_found:
        report.add_removed(table, contents=contents)
    else:
        report.add(Step(table, "not found"))


def _count_contents(listing: str) -> dict[str, int]:
    """Return how many chains, sets, maps and so on a table has that ``nft -j list table`` has listed."""
    items = [pair for item in json.loads(listing)["nftables"] for pair in item.items()]
    counts = Counter(kind for kind, _ in items if kind not in ("metainfo", "table"))
    counts["element"] = sum(len(value.get("elem", ())) for kind, value in items if kind in ("set", "map"))
    return {kind: count for kind, count in counts.items() if count}
