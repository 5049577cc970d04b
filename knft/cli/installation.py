"""How knft was installed, as its Python distribution records it: see docs/operations/index.md#version."""

import json
from enum import Enum
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

import knft

_PACKAGE = Path(knft.__file__).resolve().parent


class Method(Enum):
    """A way of installation; the value is the word that ``knft version`` prints."""

    IMAGE = "image"
    DEB = "deb"
    RPM = "rpm"
    WHEEL = "wheel"
    """A Python installer such as pip unpacked a wheel."""
    EDITABLE = "editable"
    """A Python installer refers to a checkout of the repository."""
    SOURCE = "source"
    """The folder that has knft belongs to no distribution, such as a checkout that is not installed."""


_BY_INSTALLER = {item.value: item for item in (Method.IMAGE, Method.DEB, Method.RPM)}


class Installation(msgspec.Struct, frozen=True):
    """A way of installation, the installer's name ("" if not recorded), and the folder that has knft's package."""

    method: Method
    installer: str
    location: str


def find_installation() -> Installation:
    """Return how the running knft was installed.

    The file INSTALLER of a distribution has the installer's name; the image and the packages write theirs there
    (deploy/installer.py). The file direct_url.json says whether the installation is editable.
    """
    location = str(_PACKAGE.parent)
    for distribution in metadata.distributions(name="knft"):
        installer = (distribution.read_text("INSTALLER") or "").strip()
        if _is_editable(distribution):
            return Installation(Method.EDITABLE, installer, location)
        if Path(str(distribution.locate_file("knft"))).resolve() == _PACKAGE:
            return Installation(_BY_INSTALLER.get(installer, Method.WHEEL), installer, location)
    return Installation(Method.SOURCE, "", location)


def _is_editable(distribution: metadata.Distribution) -> bool:
    """Return whether a distribution refers to the checkout that has the running package."""
    try:
        record = json.loads(distribution.read_text("direct_url.json") or "{}")
        is_editable = record["dir_info"]["editable"] is True
        path = unquote(urlsplit(record["url"]).path)
    except (ValueError, KeyError, TypeError):
        return False
    return is_editable and Path(path).resolve() == _PACKAGE.parent
