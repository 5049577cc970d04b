"""Removes a table, or describes its contents, which are removed together with it."""

import json
from collections import Counter
from collections.abc import Iterator

from knft.cli.output import Output
from knft.families import Family
from knft.kernel.listings import list_table_json
from knft.kernel.process import WorkerProcess
from knft.kernel.table import KernelTable
from knft.leftovers.messages import format_count

WOULD_BE_REMOVED = "would be removed"


def remove_table(library: WorkerProcess, family: Family, name: str, output: Output, *, dry_run: bool) -> None:
    """Remove a table, or with ``dry_run`` print its contents, and print whether it existed; raise KernelError."""
    table = f"table {family.nft} {name}"
    if not dry_run:
        removed = KernelTable(library, family, name).remove()
        output.print(f"{table}: {'removed' if removed else 'not found'}")
        return
    listing = list_table_json(library, family, name)
    if listing is None:
        output.print(f"{table}: not found")
        return
    output.print(f"{table}: {WOULD_BE_REMOVED}")
    for each in describe_contents(listing, family.nft, name):
        output.print(f"{each}: {WOULD_BE_REMOVED}")


def describe_contents(listing: str, family: str, table: str) -> Iterator[str]:
    """Yield each chain, set, map and other object of a table that ``nft -j list table`` has listed."""
    items = [pair for item in json.loads(listing)["nftables"] for pair in item.items()]
    rules = Counter(value["chain"] for kind, value in items if kind == "rule")
    for kind, value in items:
        if kind in ("metainfo", "table", "rule"):
            continue
        name = value["name"]
        details = ""
        if kind == "chain":
            details = f", with {format_count(rules[name], 'rule')}"
        elif kind in ("set", "map"):
            details = f", with {format_count(len(value.get('elem', ())), 'element')}"
        yield f"{kind} {family} {table} {name}{details}"
