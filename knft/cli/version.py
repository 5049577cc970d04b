"""``knft version``: prints the versions of knft and of what it runs on, and how it was installed."""

import os
import platform

import click
import msgspec

from knft import __version__
from knft.cli.installation import Installation, Method, find_installation
from knft.cli.terminal import terminal_width
from knft.cli.text_layout import fold
from knft.errors import KnftError
from knft.kernel.libnftables_version import libnftables_version


class Versions(msgspec.Struct, frozen=True):
    """The fields of ``-o json``, in docs/operations/index.md#version."""

    knft: str
    python: str
    libnftables: str | None
    libnftables_error: str
    kernel: str
    installation: Installation


def version(output: str) -> None:
    """Print the versions as "text" or "json". A missing library or privilege is part of the output, not an error."""
    found = _find_versions()
    as_json = output == "json"
    text = f"{msgspec.json.encode(found).decode()}\n" if as_json else format_versions(found, terminal_width())
    click.echo(text, nl=False)


def _find_versions() -> Versions:
    library, error = None, ""
    try:
        library = libnftables_version()
    except (KnftError, OSError) as reason:  # an OSError, for example, without /proc
        error = str(reason)
    return Versions(
        knft=__version__,
        python=platform.python_version(),
        libnftables=library,
        libnftables_error=error,
        kernel=os.uname().release,
        installation=find_installation(),
    )


def format_versions(found: Versions, width: int | None) -> str:
    """Return the text, folded at a width; None never folds."""
    library = found.libnftables or f"unknown: {found.libnftables_error}"
    lines = (
        f"knft {found.knft}",
        f"installed: {_installation_text(found.installation)}",
        f"Python {found.python}",
        f"libnftables {library}",
        f"Linux {found.kernel}",
    )
    return fold(lines, width)


def _installation_text(found: Installation) -> str:
    installer = found.installer or "an unknown installer"
    texts = {
        Method.IMAGE: "container image",
        Method.DEB: "deb package",
        Method.RPM: "rpm package",
        Method.WHEEL: f"wheel, by {installer}",
        Method.EDITABLE: f"editable checkout, by {installer}",
        Method.SOURCE: "not installed, started from source",
    }
    return f"{texts[found.method]}, in {found.location}"
