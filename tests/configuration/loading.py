"""Settings as the command line makes them: the real flags, a file's text."""

import textwrap
from pathlib import Path
from typing import Any

import yaml

from knft.cli.go_flags import given_flags
from knft.cli.main import run
from knft.configuration.document import API_VERSION, KIND, set_field
from knft.configuration.load import load_settings
from knft.configuration.settings import Settings

KUBEADM = Path(__file__).parent / "kubeadm.yaml"
"""What kubeadm puts into the ConfigMap of a cluster without wishes."""
PRIMARY = "--nodeport-addresses=primary"
"""What keeps a command line without a mode from a warning."""
HOST = "Host-1"
FILE = "config.conf"


def given(*flags: str) -> dict[str, Any]:
    """Return what the command line hands on of some flags."""
    return given_flags(run.make_context("run", list(flags)))


def load(*flags: str, text: str | bytes | None = None) -> Settings:
    """Return the Settings of some flags, and of a file with ``text`` where it is given."""
    arguments = [*flags, f"--config={FILE}"] if text is not None else flags
    data = text.encode() if isinstance(text, str) else text or b""
    return load_settings(given(*arguments), HOST, lambda _: data)


def config(fields: str = "") -> str:
    """Return a configuration with some lines of fields."""
    return f"apiVersion: {API_VERSION}\nkind: {KIND}\n{textwrap.dedent(fields)}"


def of_fields(**fields: Any) -> str:
    """Return a configuration with some fields, named by their paths, ``__`` for a dot."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for name, value in fields.items():
        set_field(document, name.replace("__", "."), value)
    return yaml.safe_dump(document, default_style='"')  # whatever a text looks like, it stays text


def of_paths(paths: dict[str, Any]) -> str:
    """Return a configuration with some fields, named by their paths."""
    return of_fields(**{path.replace(".", "__"): value for path, value in paths.items()})
