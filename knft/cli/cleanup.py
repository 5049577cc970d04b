"""``knft cleanup``: take away knft's tables."""

import click

from knft.kernel.libnftables import Library
from knft.kernel.probe import require_privilege
from knft.kernel.table import KernelTable
from knft.model.names import Family
from knft.render.names import NFT_FAMILIES, TABLE


def cleanup() -> None:
    """Remove the tables of both families, and say what was there."""
    require_privilege()
    library = Library()
    for family in Family:
        nft_family = NFT_FAMILIES[family]
        removed = KernelTable(library, nft_family, TABLE).remove()
        click.echo(f"table {nft_family} {TABLE}: {'removed' if removed else 'was not there'}")
