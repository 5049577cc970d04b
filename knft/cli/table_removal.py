"""Removes a table, or counts its contents, which are removed together with it."""

import json
from collections import Counter

from knft.cli.output import Output
from knft.counts import format_count
from knft.families import Family
from knft.kernel.listings import list_table_json
from knft.kernel.process import WorkerProcess
from knft.kernel.table import KernelTable

WOULD_BE_REMOVED = "would be removed"


def remove_table(library: WorkerProcess, family: Family, name: str, output: Output, *, dry_run: bool) -> None:
    """Remove a table, and print whether it existed; with ``dry_run``, print what it contains. Raise KernelError."""
    table = f"table {family.nft} {name}"
    if not dry_run:
        removed = KernelTable(library, family, name).remove()
        output.print(f"{table}: {'removed' if removed else 'not found'}")
        return
    listing = list_table_json(library, family, name)
    if listing is None:
        output.print(f"{table}: not found")
        return
    output.print(f"{table}, with {describe_contents(listing)}: {WOULD_BE_REMOVED}")


def describe_contents(listing: str) -> str:
    """Return how many chains, sets, maps and so on a table has that ``nft -j list table`` has listed."""
    items = [pair for item in json.loads(listing)["nftables"] for pair in item.items()]
    counts = Counter(kind for kind, _ in items if kind not in ("metainfo", "table"))
    counts["element"] = sum(len(value.get("elem", ())) for kind, value in items if kind in ("set", "map"))
    return ", ".join(format_count(count, kind) for kind, count in counts.items() if count) or "nothing in it"
