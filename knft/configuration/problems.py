"""Problems of a configuration: each has the path of its field, so that all are reported in the order of the file."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

MAX_REPORTED = 20
"""Maximum number of problems, and of unknown fields, reported for a file."""

FieldPath = tuple[str | int, ...]
"""Keys and list indexes that lead to a value of a document."""


class Problem(NamedTuple):
    """A problem of a field; the message begins with the name of the file and the field, or of the flag."""

    path: FieldPath
    message: str


def in_file_order(problems: Iterable[Problem], document: Mapping[str, Any]) -> list[Problem]:
    """Return the problems in the order of their fields in the document; those of missing fields come last."""
    order = _FileOrder(document)
    return sorted(problems, key=lambda problem: order.position(problem.path))


def limit_problems(problems: list[Problem], prefix: str = "") -> list[Problem]:
    """Return the first MAX_REPORTED problems; if there are more, add one with the number of the others."""
    omitted = len(problems) - MAX_REPORTED
    if omitted <= 0:
        return problems
    return [*problems[:MAX_REPORTED], Problem((), f"{prefix}not shown: {omitted} more")]


class _FileOrder:
    """Finds the positions of fields; it numbers the keys of each mapping once."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._ranks: dict[int, dict[str, int]] = {}

    def position(self, path: FieldPath) -> tuple[int, ...]:
        """Return the rank of each part of the path in its mapping or list."""
        found: list[int] = []
        value: Any = self._document
        for part in path:
            if isinstance(value, dict) and part in value:
                found.append(self._ranks_of(value)[str(part)])
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                found.append(part)
            else:
                break
            value = value[part]
        return tuple(found) or (len(self._document),)

    def _ranks_of(self, mapping: dict[str, Any]) -> dict[str, int]:
        return self._ranks.setdefault(id(mapping), {}) or self._number(mapping)

    def _number(self, mapping: dict[str, Any]) -> dict[str, int]:
        ranks = self._ranks[id(mapping)] = {key: rank for rank, key in enumerate(mapping)}
        return ranks


def did_you_mean(text: str, valid: Iterable[str]) -> str:
    """Return a question that names the most similar valid text, for the end of a message; "" if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415

    by_lower_case = {name.lower(): name for name in valid}
    similar = get_close_matches(text.lower(), by_lower_case, n=1, cutoff=0.7)
    return f"; did you mean {by_lower_case[similar[0]]}?" if similar else ""
