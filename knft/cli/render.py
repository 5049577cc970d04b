"""``knft render``: the ruleset on paper."""

from typing import Any

import click

from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.config import Config
from knft.families import Family
from knft.nft.codec.tables import declarations_text, table_text, transaction_json
from knft.nft.objects import Table
from knft.nft.transaction import Transaction
from knft.render.layout import whole_table, without_unreachable_chains
from knft.sync.assemble import recording_daemon


def render(
    *,
    paths: tuple[str, ...],
    output: str,
    declarations: bool,
    family: str | None,
    **options: Any,  # noqa: ANN401 - click's values; those of other backends among them
) -> None:
    """Print the ruleset, or raise before anything is printed."""
    config = config_from_options(options)
    families = [item for item in Family if family in (None, item.value.lower())]
    recorded = _first_sync(paths, config)
    form = "declarations" if declarations else output
    pages = [_page(*recorded[item], form) for item in families]
    click.echo(("" if form == "json" else "\n").join(pages), nl=False)


def _first_sync(paths: tuple[str, ...], config: Config) -> dict[Family, tuple[Table, Transaction]]:
    """Return what a first sync on a machine without the tables declares, and then sends."""
    changes = read_manifests(paths)
    daemon, recorders = recording_daemon(config)
    daemon.handle(changes)
    daemon.sync()
    return {family: recorder.first_sync() for family, recorder in recorders.items()}


def _page(declared: Table, transaction: Transaction, form: str) -> str:
    match form:
        case "declarations":
            return declarations_text(declared)
        case "json":
            return transaction_json(transaction).decode() + "\n"
        case _:
            return table_text(without_unreachable_chains(whole_table(declared, transaction)))
