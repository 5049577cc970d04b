"""``knft render``: the ruleset on paper."""

import sys
from typing import Any

import click

from knft.cli.options import config_from_options
from knft.config import Config
from knft.errors import SourceError
from knft.model.names import Family
from knft.nft.codec.tables import declarations_text, table_text, transaction_json
from knft.nft.transaction import Transaction
from knft.render.layout import declarations as declared_table
from knft.render.layout import reachable, whole_table
from knft.source.directory import read_paths
from knft.sync.assemble import recorded_daemon


def render(
    *,
    paths: tuple[str, ...],
    output: str,
    declarations: bool,
    family: str | None,
    **options: Any,  # noqa: ANN401 - click's values
) -> None:
    """Print the ruleset, or raise before anything is printed."""
    config = config_from_options(options)
    families = [item for item in Family if family in (None, item.value.lower())]
    if declarations:
        pages = [declarations_text(declared_table(item)) for item in families]
    else:
        first = _first_transactions(paths, config)
        pages = [_page(item, first[item], output) for item in families]
    click.echo(("\n" if output == "text" else "").join(pages), nl=False)


def _first_transactions(paths: tuple[str, ...], config: Config) -> dict[Family, Transaction]:
    standard_input = sys.stdin.buffer.read() if "-" in paths else None
    scan = read_paths(paths, standard_input)
    for sentence in (*scan.problems, *scan.remarks):
        click.echo(f"knft: {sentence}", err=True)
    daemon, recorders = recorded_daemon(config)
    daemon.handle(scan.changes)
    daemon.sync()
    found = {family: recorder.transaction for family, recorder in recorders.items()}
    if None in found.values():
        msg = "nothing was rendered"
        raise SourceError(msg)
    return {family: transaction for family, transaction in found.items() if transaction is not None}


def _page(family: Family, transaction: Transaction, output: str) -> str:
    if output == "json":
        return transaction_json(transaction).decode() + "\n"
    return table_text(reachable(whole_table(family, transaction)))
