"""Writes a configuration as YAML, for --write-config-to."""

import os
import stat
import tempfile
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
    """Write a document to a new file of mode 0600, which replaces an existing one; raise ConfigurationError on failure.

    Other processes see the old file or the whole new one. A symbolic link is an error: in a folder that other users can
    write to, it leads to a file that they choose.
    """
    try:
        _check_target(Path(path))
        _replace(Path(path), to_yaml(document))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"--write-config-to: {format_path(path)}: cannot write the file: {reason}"
        raise ConfigurationError(msg) from error


def _check_target(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        file_type = "a symbolic link, which knft does not follow" if stat.S_ISLNK(mode) else "not a regular file"
        msg = f"it is {file_type}"
        raise ValueError(msg)


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".knft-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        # A link that appears in the meantime is replaced, and not followed.
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
