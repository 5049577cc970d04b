"""Splits lines into words as iptables-restore and ipset do: double quotes quote, and a backslash within them escapes.

A quoted word keeps its first quote, so that text such as ``"-j"`` is not taken for an option.
"""

import re
from collections.abc import Sequence

from knft.errors import CaptureError

_QUOTE = '"'
_WORD = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*+)(?P<end>"?)|(?P<word>[^\s"]+)')


def split_words(line: str) -> list[str]:
    """Return the words of a line; raise CaptureError if a quote has no end."""
    if _QUOTE not in line:
        return line.split()
    if "\\" in line:
        return _split_escaped(line)
    pieces = line.split(_QUOTE)
    if len(pieces) % 2 == 0:
        msg = "missing closing quote"
        raise CaptureError(msg)
    words: list[str] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            words.append(_QUOTE + piece)
        else:
            words += piece.split()
    return words


def _split_escaped(line: str) -> list[str]:
    words = []
    at = 0
    for found in _WORD.finditer(line):
        quoted, end, word = found.groups()
        if line[at : found.start()].strip() or not (word or end):
            break
        words.append(word or _QUOTE + re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    if line[at:].strip():
        msg = "missing closing quote"
        raise CaptureError(msg)
    return words


def unquote(word: str) -> str:
    """Return a word without its quote."""
    return word[1:] if word.startswith(_QUOTE) else word


def join_words(words: Sequence[str]) -> str:
    """Return words as a line of the capture."""
    return " ".join([f"{word}{_QUOTE}" if word.startswith(_QUOTE) else word for word in words])
