"""Loads Settings from flags and the text of a configuration file, as the command line does."""

import textwrap
from pathlib import Path
from typing import Any

import yaml

from knft.cli.commands import run
from knft.cli.go_flags import given_flags
from knft.configuration.document import API_VERSION, KIND, set_field
from knft.configuration.load import load_settings
from knft.configuration.settings import Settings

KUBEADM = Path(__file__).parents[1] / "configuration" / "kubeadm.yaml"
"""The file that kubeadm puts into the ConfigMap of a cluster with default settings."""
PRIMARY_FLAG = "--nodeport-addresses=primary"
"""Without this flag, a command line without a mode gives a warning."""
HOSTNAME = "Host-1"
FILE = "config.conf"


def parse_flags(*flags: str) -> dict[str, Any]:
    """Return the values of flags as the command line passes them to ``load_settings``."""
    return given_flags(run.make_context("run", list(flags)))


def load(*flags: str, text: str | bytes | None = None) -> Settings:
    """Return the Settings of flags, and of a configuration file with ``text`` unless it is None."""
    arguments = [*flags, f"--config={FILE}"] if text is not None else flags
    data = text.encode() if isinstance(text, str) else text or b""
    return load_settings(parse_flags(*arguments), HOSTNAME, lambda _: data)


def config_text(fields: str = "") -> str:
    """Return the text of a configuration file with lines of fields."""
    return f"apiVersion: {API_VERSION}\nkind: {KIND}\n{textwrap.dedent(fields)}"


def config_with_fields(**fields: Any) -> str:
    """Return the text of a configuration file with fields, named by their paths with ``__`` for a dot."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for name, value in fields.items():
        set_field(document, name.replace("__", "."), value)
    return yaml.safe_dump(document, default_style='"')  # quoted, so that text such as 1e5 stays text


def config_with_paths(paths: dict[str, Any]) -> str:
    """Return the text of a configuration file with fields, named by their paths."""
    return config_with_fields(**{path.replace(".", "__"): value for path, value in paths.items()})
