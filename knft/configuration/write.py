"""Writes a configuration as YAML, for --write-config-to."""

from pathlib import Path

import yaml

from knft.configuration.document import Document
from knft.errors import ConfigurationError
from knft.source.files import format_path
from knft.source.yaml_documents import is_text


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes strings that knft's YAML reader would not read as strings, such as 1e5."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if is_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(document: Document) -> bytes:
    """Return a document as YAML with sorted keys, as kube-proxy writes it."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=True, default_flow_style=False, allow_unicode=True)
    return text.encode()


def write_document(document: Document, path: str) -> None:
    """Write a document to a file; raise ConfigurationError if that fails."""
    try:
        Path(path).write_bytes(to_yaml(document))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"--write-config-to: {format_path(path)}: cannot write the file: {reason}"
        raise ConfigurationError(msg) from error
