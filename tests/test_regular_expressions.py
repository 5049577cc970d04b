"""No regular expression takes more than linear time, whatever the text."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

import knft
import knft_compat
from knft.apiserver import lenient_json
from knft.interpret import reasons
from knft.redaction import hide_credentials, hide_secrets
from tests.support.regex_attacks import Use, attacks, patterns_of_schema, uses_in_code

SIZES = (20, 200, 4000)
"""Lengths of texts. Exponential time is found with the first, cubic time with the second, quadratic with the last."""
SECONDS, SECONDS_PER_LETTER = 0.002, 1e-6
"""CPU time of a match that linear time stays below, and that for each letter.

A linear match takes 0.01 µs for each letter; exponential, cubic and quadratic time take 10 ms at least for these sizes.
On a busy machine, CPU time of a short match may be some hundred times as long.
"""

SCHEMAS = sorted(Path(knft.__file__).parent.rglob("*.schema.json"))
TABLE = [
    use
    for row in reasons._BLOCKING_RULES
    for use in (Use(row.reason, re.compile(row.chain), "fullmatch"), Use(row.reason, re.compile(row.text), "search"))
]
IN_SCHEMAS = [use for path in SCHEMAS for use in patterns_of_schema(path)]
USES = sorted({*uses_in_code(knft, knft_compat), *TABLE, *IN_SCHEMAS}, key=str)


def cpu_seconds(use: Use, text: Any) -> float:
    """Return the CPU time of a match."""
    method = getattr(use.pattern, use.method)
    arguments = (text[:0], text) if use.method.startswith("sub") else (text,)
    started = time.process_time()
    found = method(*arguments)
    if use.method == "finditer":
        list(found)
    return time.process_time() - started


def slow_text(use: Use) -> str:
    """Return the beginning of a text on which a regular expression is slow, "" if there is none."""
    for beginning, part, end in attacks(use.pattern):
        for size in SIZES:
            text = beginning + part * (size // len(part)) + end
            limit = SECONDS + SECONDS_PER_LETTER * len(text)
            if all(cpu_seconds(use, text) > limit for _ in range(5)):
                return repr(text[:60])
    return ""


@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.where}.{use.method}")
def test_regular_expression_takes_linear_time(use: Use) -> None:
    assert slow_text(use) == ""


@pytest.mark.parametrize(
    "text",
    [
        "authorization:" + " " * 20_000,
        "authorization: " * 2_000,
        "eyJ-" * 10_000,
        "eyJ-" * 5_000 + "." + "a" * 20_000,
        "password" * 2_000 + "=",
        "://a" * 10_000,
        "-----BEGIN PRIVATE KEY" * 1_000,
    ],
    ids=lambda text: text[:20],
)
def test_credentials_are_found_in_linear_time(text: str) -> None:
    """Quadratic time takes 1 s at least."""
    started = time.process_time()
    hide_credentials(text)
    hide_secrets(text)
    assert time.process_time() - started < 0.3


def test_string_without_end_is_skipped_in_linear_time() -> None:
    data = b'{"a": "' + b'\\"' * 20_000
    started = time.process_time()
    assert not lenient_json.is_complete(data)
    assert lenient_json.prune_below(data, 0) == data
    assert time.process_time() - started < 0.3
