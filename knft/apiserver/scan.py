"""Scan: what JSON holds, found without decoding it, for what no decoder takes.

Pure, and without recursion: values may lie in each other as deep as somebody likes. It is slow beside a decoder, and
used only where that has given up.
"""

import re
from collections.abc import Iterator

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)
"""Strings as a whole, so that what stands in them counts for nothing, and what gives values their structure."""
_OPENS, _CLOSES = frozenset({b"{", b"["}), frozenset({b"}", b"]"})


def cut(data: bytes, depth: int) -> bytes:
    """Return JSON with a null for every object and list that lies in more than ``depth`` others."""
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


def is_whole(data: bytes) -> bool:
    """Tell whether an object or a list ends where the data does, and nowhere before."""
    data = data.strip()
    if data[:1] not in (b"{", b"["):
        return False
    level = 0
    for token in _TOKENS.finditer(data):
        level += (token[0] in _OPENS) - (token[0] in _CLOSES)
        if level == 0:
            return token.end() == len(data)
    return False


def items(data: bytes) -> Iterator[bytes]:
    """Yield the values of a list; nothing where it is none."""
    if data.lstrip()[:1] == b"[":
        for span in _parts(data):
            yield span.strip()


def members(data: bytes) -> dict[str, bytes]:
    """Return the values of an object by their names, without names that are not text; {} where it is none."""
    found: dict[str, bytes] = {}
    if data.lstrip()[:1] == b"{":
        for span in _parts(data):
            name = _TOKENS.match(span.lstrip())
            value = span.lstrip()[name.end() :].lstrip() if name is not None else b""
            if name is not None and value[:1] == b":":
                found[name[0][1:-1].decode(errors="replace")] = value[1:].strip()
    return found


def text(value: bytes) -> str:
    """Return what a string or a whole number says, "" for anything else; what is not text in it is replaced."""
    if value.isdigit():
        return value.decode()
    return value[1:-1].decode(errors="replace") if len(value) > 1 and value[:1] == b'"' else ""


def _parts(data: bytes) -> Iterator[bytes]:
    """Yield what stands between the outermost brackets and the commas there."""
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
