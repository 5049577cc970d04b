"""Reads the configuration file."""

from collections.abc import Iterable
from pathlib import Path

from knft.errors import ConfigurationError, SourceError
from knft.source.files import error_reason, format_path, read_manifest

MAX_BYTES = 4 << 20
"""The maximum size of a configuration file; a ConfigMap is limited to a quarter of it."""


def read_configuration(path: str) -> bytes:
    """Return the content of a configuration file; raise ConfigurationError if it cannot be read."""
    try:
        return read_manifest(Path(path), MAX_BYTES)
    except (OSError, SourceError, ValueError) as error:
        raise file_error(path, [error_reason(error)]) from error


def file_error(path: str, problems: Iterable[str]) -> ConfigurationError:
    """Return the error for the problems of a file, one per line."""
    return ConfigurationError("\n".join(f"{format_path(path)}: {sentence}" for sentence in problems))
