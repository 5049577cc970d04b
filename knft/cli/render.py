"""``knft render``: prints knft's rule set for manifests, without loading it into the kernel."""

from typing import Any

import click

from knft.cli.manifests import print_messages, read_manifests
from knft.cli.options import config_from_options
from knft.comparison.node_name import node_warnings
from knft.config import Config
from knft.families import Family
from knft.model.objects import ObjectChange
from knft.nft.codec.tables import declarations_text, table_text, transaction_json
from knft.nft.objects import Table
from knft.nft.transaction import Transaction
from knft.render.layout import whole_table, without_unreachable_chains
from knft.sync.assemble import rendering_daemon


def render(
    *,
    paths: tuple[str, ...],
    output: str,
    declarations: bool,
    family: str | None,
    **options: Any,  # noqa: ANN401 - click's values; those of other backends among them
) -> None:
    """Print the rule set; an error is raised before any output."""
    config = config_from_options(options)
    families = [item for item in Family if family in (None, item.value.lower())]
    changes = read_manifests(paths)
    print_messages(node_warnings(config, changes))
    recorded = _first_sync(changes, config)
    output_format = "declarations" if declarations else output
    texts = [_format_family(*recorded[item], output_format) for item in families]
    click.echo(("" if output_format == "json" else "\n").join(texts), nl=False)


def _first_sync(changes: tuple[ObjectChange, ...], config: Config) -> dict[Family, tuple[Table, Transaction]]:
    """Return, by family, the declarations and the transaction of the first sync on a node without knft's tables."""
    daemon, recorders = rendering_daemon(config)
    daemon.handle(changes)
    daemon.sync()
    return {family: recorder.first_sync() for family, recorder in recorders.items()}


def _format_family(declared: Table, transaction: Transaction, output_format: str) -> str:
    match output_format:
        case "declarations":
            return declarations_text(declared)
        case "json":
            return transaction_json(transaction).decode() + "\n"
        case _:
            return table_text(without_unreachable_chains(whole_table(declared, transaction)))
