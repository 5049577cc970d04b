"""The statements of an explanation, each checked to be a sentence whose values are not empty."""

import re
from collections.abc import Iterator

from knft.explain.explanation import Explanation
from knft.explain.sentences import Sentence, Statement

_FIELD = re.compile(r"\\\{\w+\\\}")


def checked_statements(found: Explanation) -> tuple[Statement, ...]:
    """Return all statements of an explanation."""
    statements = tuple(_statements(found))
    for each in statements:
        template = Sentence[each.kind.upper()].value
        assert re.fullmatch(_FIELD.sub(r"\\S(?:.*\\S)?", re.escape(template)), each.text), each
    return statements


def _statements(found: Explanation) -> Iterator[Statement]:
    yield from (*found.conclusion, *found.kernel, *found.sync)
    for port in found.ports:
        yield from (port.conclusion, *port.problems, *port.notes)
        yield from (each for frontend in port.frontends for each in frontend.claims)
        yield from (use.reason for each in port.endpoints for use in each.uses)
