"""Parses a configuration file; unknown fields and duplicate keys only give warnings, as in kube-proxy."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from knft.configuration.document import API_VERSION, KIND, Document
from knft.configuration.file_content import file_error
from knft.configuration.problems import FieldPath, Problem, in_file_order, limit_problems
from knft.configuration.schema import validate
from knft.configuration.table import FIELDS
from knft.errors import SourceError
from knft.source import yaml_documents
from knft.source.files import format_path
from knft.source.formatting import describe_type, format_value


class ParsedFile(NamedTuple):
    """A document without the values that do not match the schema, and the problems of the whole document."""

    name: str
    """The file's name in messages."""
    document: Document
    original: Document
    """The document with its invalid values; it tells the order of the fields."""
    errors: tuple[Problem, ...]
    unknown: tuple[Problem, ...]
    """Warnings about unknown fields."""
    warnings: tuple[str, ...]
    """Other warnings."""
    invalid: frozenset[str]
    """The fields that the document lacks because their values do not match the schema."""

    def messages(self, found: Iterable[Problem]) -> list[str]:
        """Return the errors, with those found in the values, and if there are any, the warnings in between."""
        errors = in_file_order([*self.errors, *found], self.original)
        if not errors:
            return []
        unknown = self.limited_unknown()
        problems = in_file_order([*limit_problems(errors, f"{self.name}: "), *unknown], self.original)
        return [*self.warnings, *(problem.message for problem in problems)]

    def limited_unknown(self) -> list[Problem]:
        """Return the warnings about the first unknown fields."""
        return limit_problems(in_file_order(self.unknown, self.original), f"{self.name}: ")


def parse_file(path: str, data: bytes) -> ParsedFile:
    """Return the document in ``data``, the content of ``path``; raise ConfigurationError if it is of another kind."""
    name = format_path(path)
    try:
        documents = yaml_documents.load(data)
    except SourceError as error:
        raise file_error(path, [str(error)]) from error
    if not documents or documents[0].value in (None, ""):
        raise file_error(path, [f"the file is empty; it must be a {KIND} ({API_VERSION})"])
    original = documents[0].value
    header_errors = _check_header(path, original)
    result = validate(original)
    invalid_paths = [problem.path for problem in result.problems if problem.path not in _HEADER]
    errors = [problem for problem in result.problems if problem.path in invalid_paths]
    warnings = list(documents[0].warnings)
    if len(documents) > 1:
        warnings.append(f"it has {len(documents)} documents; only the first is used")
    return ParsedFile(
        name,
        _without(original, set(invalid_paths)),
        original,
        (*header_errors, *_in_file(name, errors)),
        tuple(_in_file(name, result.unknown)),
        tuple(f"{name}: {warning}" for warning in warnings),
        frozenset(field for field in FIELDS if any(_is_inside(field, invalid) for invalid in invalid_paths)),
    )


_HEADER: tuple[FieldPath, ...] = ((), ("apiVersion",), ("kind",))
"""Paths of the schema's errors about apiVersion and kind, for which there are better messages."""


def _check_header(path: str, document: Any) -> Iterable[Problem]:  # noqa: ANN401 - any YAML value
    """Return the problems of version and kind; raise ConfigurationError if the file is no KubeProxyConfiguration."""
    if not isinstance(document, dict):
        raise file_error(path, [f"it holds {describe_type(document)}, but must be a {KIND} ({API_VERSION})"])
    problems = []
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = document.get(name)
        if found is None:
            problems.append(Problem((name,), f"{name} is missing; it must be {expected}"))
        elif found != expected:
            problems.append(Problem((name,), f"{name} is {format_value(found)}, but must be {expected}"))
    if document.get("kind") not in (None, KIND):
        # Its fields have other meanings.
        raise file_error(path, [problem.message for problem in in_file_order(problems, document)])
    return _in_file(format_path(path), problems)


def _in_file(name: str, problems: Iterable[Problem]) -> list[Problem]:
    return [problem._replace(message=f"{name}: {problem.message}") for problem in problems]


def _is_inside(field: str, path: FieldPath) -> bool:
    parts = field.split(".")
    return tuple(parts[: len(path)]) == path


def _without(value: Any, paths: set[FieldPath]) -> Any:  # noqa: ANN401 - any YAML value
    """Return a value without the values at some paths in it; null replaces those of lists, to keep the positions."""
    inner: dict[str | int, set[FieldPath]] = {}
    for first, *rest in paths:
        inner.setdefault(first, set()).add(tuple(rest))
    if isinstance(value, list):
        return [None if () in inner.get(key, ()) else _inner(item, inner.get(key)) for key, item in enumerate(value)]
    return {key: _inner(item, inner.get(key)) for key, item in value.items() if () not in inner.get(key, ())}


def _inner(value: Any, paths: set[FieldPath] | None) -> Any:  # noqa: ANN401 - any YAML value
    return _without(value, paths) if paths else value
