"""``knft cleanup``: removes knft's tables."""

import click

from knft.families import Family
from knft.kernel.libnftables import Library
from knft.kernel.probe import require_privilege
from knft.kernel.table import KernelTable
from knft.render.names import TABLE


def cleanup() -> None:
    """Remove the tables of both families, and print which of them existed."""
    require_privilege()
    library = Library()
    for family in Family:
        removed = KernelTable(library, family, TABLE).remove()
        click.echo(f"table {family.nft} {TABLE}: {'removed' if removed else 'not found'}")
