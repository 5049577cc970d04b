"""``knft version``: prints the versions of knft and of what it runs on, and how it was installed."""

import os
import platform

import click
import msgspec

from knft import __version__
from knft.cli.installation import Installation, Method, find_installation
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
    click.echo(msgspec.json.encode(found).decode() if output == "json" else _text(found))


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


def _text(found: Versions) -> str:
    library = found.libnftables or f"unknown: {found.libnftables_error}"
    return "\n".join(
        (
            f"knft {found.knft}",
            f"installed: {_installation_text(found.installation)}",
            f"Python {found.python}",
            f"libnftables {library}",
            f"Linux {found.kernel}",
        )
    )


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
