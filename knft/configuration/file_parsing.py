"""Parses a configuration file; unknown fields and duplicate keys only give warnings, as in kube-proxy."""

from typing import Any, NamedTuple

from knft.configuration.document import API_VERSION, KIND, Document
from knft.configuration.file_content import file_error
from knft.configuration.schema import validate
from knft.errors import SourceError
from knft.source import yaml_documents
from knft.source.files import format_path
from knft.source.formatting import describe_type, format_value


class ParsedFile(NamedTuple):
    """A document that matches the schema except for unknown fields, and the warnings about it."""

    document: Document
    warnings: tuple[str, ...]


def parse_file(path: str, data: bytes) -> ParsedFile:
    """Return the document in ``data``, the content of ``path``; raise ConfigurationError with a line per problem."""
    name = format_path(path)
    try:
        documents = yaml_documents.load(data)
    except SourceError as error:
        raise file_error(path, [str(error)]) from error
    if not documents or documents[0].value in (None, ""):
        raise file_error(path, [f"the file is empty; it must be a {KIND} ({API_VERSION})"])
    document = documents[0].value
    _check_version(path, document)
    found = validate(document)
    if found.problems:
        raise file_error(path, found.problems)
    warnings = [*documents[0].warnings, *found.unknown]
    if len(documents) > 1:
        warnings.append(f"it has {len(documents)} documents; only the first is used")
    return ParsedFile(document, tuple(f"{name}: {warning}" for warning in warnings))


def _check_version(path: str, document: Any) -> None:  # noqa: ANN401 - any YAML value
    if not isinstance(document, dict):
        raise file_error(path, [f"it holds {describe_type(document)}, but must be a {KIND} ({API_VERSION})"])
    version, kind = document.get("apiVersion"), document.get("kind")
    for name, found, expected in (("apiVersion", version, API_VERSION), ("kind", kind, KIND)):
        if found is None:
            raise file_error(path, [f"{name} is missing; it must be {expected}"])
        if found != expected:
            raise file_error(path, [f"{name} is {format_value(found)}, but must be {expected}"])
