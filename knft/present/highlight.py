"""Marks the parts of addresses and numbers that differ between the outcomes of both sides."""

import re
from itertools import takewhile

from markupsafe import Markup, escape

_WORD = re.compile(r"([\s,()]+)")
_PART = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z]")
_DIGIT = re.compile(r"\d")


def highlighted(text: str, other: str) -> Markup:
    """Return a text with marks at the parts of its addresses and numbers that the other side's text does not have.

    Without an address or number on the other side, nothing is marked: the whole outcome differs then.
    """
    pieces, other_pieces = _WORD.split(text), _WORD.split(other)
    if not any(map(_DIGIT.search, other_pieces)):
        return escape(text)
    own_only, other_only = _changed_words(pieces, other_pieces), _changed_words(other_pieces, pieces)
    counterparts = dict(zip(own_only, other_only, strict=False))
    return Markup("").join(
        _marked(piece, counterparts.get(piece, "")) if piece in own_only else escape(piece) for piece in pieces
    )


def _changed_words(pieces: list[str], other: list[str]) -> dict[str, None]:
    """Return the words with digits that the other side does not have, in their order."""
    known = set(other)
    return dict.fromkeys(piece for piece in pieces if piece not in known and _DIGIT.search(piece))


def _marked(word: str, counterpart: str) -> Markup:
    """Return a word with a mark at what is between its common beginning and end with its counterpart."""
    parts, other = _PART.findall(word), _PART.findall(counterpart)
    start = _common_length(parts, other)
    end = len(parts) - _common_length(parts[start:][::-1], other[start:][::-1])
    before, changed, after = ("".join(piece) for piece in (parts[:start], parts[start:end], parts[end:]))
    return Markup("{}<mark>{}</mark>{}").format(before, changed, after) if changed else escape(word)


def _common_length(left: list[str], right: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
