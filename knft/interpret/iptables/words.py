"""Splits lines into words as the programs do: only double quotes quote, and a backslash within them escapes.

A word that was quoted keeps the quote in front of it, so that a text such as ``"-j"`` is never taken for an option.
"""

import re
from collections.abc import Sequence

from knft.errors import CaptureError

_QUOTE = '"'
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"]+)')


def split(line: str) -> list[str]:
    """Return a line's words; raise CaptureError where a quote does not end."""
    if _QUOTE not in line:
        return line.split()
    if "\\" in line:
        return _split_escaped(line)
    pieces = line.split(_QUOTE)
    if len(pieces) % 2 == 0:
        msg = "a quote begins and does not end"
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
        if line[at : found.start()].strip():
            break
        quoted, word = found.groups()
        words.append(word or _QUOTE + re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    if line[at:].strip():
        msg = "a quote begins and does not end"
        raise CaptureError(msg)
    return words


def plain(word: str) -> str:
    """Return what a word says, whether it was quoted or not."""
    return word[1:] if word.startswith(_QUOTE) else word


def spelled(words: Sequence[str]) -> str:
    """Return words as a line has them."""
    return " ".join([f"{word}{_QUOTE}" if word.startswith(_QUOTE) else word for word in words])


def quoted(text: str) -> str:
    """Return what cannot be read, as an error shows it: short, and without control characters."""
    longest = 60
    return repr(text if len(text) <= longest else f"{text[:longest]}...")
