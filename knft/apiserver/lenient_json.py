"""Finds values in JSON that no decoder accepts, without decoding it.

It uses no recursion, so any nesting is possible. It is much slower than a decoder, and only used after one has failed.
"""

import re
from collections.abc import Iterator

_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\],:]', re.DOTALL)
"""Whole strings, so that their contents are skipped, and the characters of JSON's structure.

A string without an end extends to the end of the data: otherwise each of its escaped quotes would be tried as the
beginning of another string.
"""
_OPENS, _CLOSES = frozenset({b"{", b"["}), frozenset({b"}", b"]"})


def prune_below(data: bytes, depth: int) -> bytes:
    """Return JSON with null in place of every object and list that is nested in more than ``depth`` others."""
    kept: list[bytes] = []
    begin, level, start = 0, 0, -1
    for token in _TOKENS.finditer(data):
        letter = token[0]
        if letter in _OPENS:
            if level == depth:
                start = token.start()
            level += 1
        elif letter in _CLOSES:
            level -= 1
            if level == depth and start >= 0:
                kept += (data[begin:start], b"null")
                begin, start = token.end(), -1
    return b"".join((*kept, data[begin:]))


def is_complete(data: bytes) -> bool:
    """Tell whether the data is exactly one object or list."""
    data = data.strip()
    if data[:1] not in (b"{", b"["):
        return False
    level = 0
    for token in _TOKENS.finditer(data):
        level += (token[0] in _OPENS) - (token[0] in _CLOSES)
        if level == 0:
            return token.end() == len(data)
    return False


def list_items(data: bytes) -> Iterator[bytes]:
    """Yield the encoded values of a list; nothing if the data is not a list."""
    if data.lstrip()[:1] == b"[":
        for span in _split_members(data):
            yield span.strip()


def object_members(data: bytes) -> dict[str, bytes]:
    """Return the encoded values of an object by name; {} if the data is not an object."""
    found: dict[str, bytes] = {}
    if data.lstrip()[:1] == b"{":
        for span in _split_members(data):
            name = _TOKENS.match(span.lstrip())
            value = span.lstrip()[name.end() :].lstrip() if name is not None else b""
            if name is not None and value[:1] == b":":
                found[name[0][1:-1].decode(errors="replace")] = value[1:].strip()
    return found


def scalar_text(value: bytes) -> str:
    """Return the text of a string or of a whole number, "" for other values; invalid UTF-8 is replaced."""
    if value.isdigit():
        return value.decode()
    return value[1:-1].decode(errors="replace") if len(value) > 1 and value[:1] == b'"' else ""


def _split_members(data: bytes) -> Iterator[bytes]:
    """Yield the parts between the outermost brackets, which commas separate."""
    begin, level = 0, 0
    for token in _TOKENS.finditer(data):
        letter, before = token[0], level
        level += (letter in _OPENS) - (letter in _CLOSES)
        ends = level == 0 or (level == 1 and letter == b",")
        if ends and data[begin : token.start()].strip():
            yield data[begin : token.start()]
        if ends or before == 0:
            begin = token.end()
        if level == 0:
            return
