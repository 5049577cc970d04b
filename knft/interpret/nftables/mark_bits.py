"""Which bits of the packet mark a statement reads or writes.

A statement that copies the mark of a connection (``ct mark``) to the packet, or the packet mark to the connection, uses
bits of the packet mark. One that only compares or sets the mark of a connection uses none.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

from knft.interpret.nftables.marks import ALL, Mark, read_mark

_EXTENSIONS = frozenset({"MARK", "mark", "mark_m", "CONNMARK", "TPROXY", "SET", "socket", "HMARK"})
"""Extensions of iptables and ebtables that can read or write the packet mark; nft lists their names alone."""


def mark_bits(statement: Any) -> int | None:
    """Return the bits that a statement reads or writes; None if it uses the mark in a way that is unknown to knft."""
    match statement:
        case {"match": {"left": left, "right": right, "op": "==" | "!="}} if (mark := read_mark(left)) is not None:
            return _compared_bits(mark, right)
        case {"match": {"left": left, "right": right}}:
            return _union((_read_bits(left), _read_bits(right)))
        case {"vmap": {"key": key}}:
            return _read_bits(key)
        case {"mangle": {"key": {"meta": {"key": "mark"}}, "value": value}}:
            return _written_bits(value)
        case {"mangle": {"value": value}}:
            return _read_bits(value)
    # libnftables lists statements for which it has no JSON as text.
    is_without_mark = "mark" not in statement.split() if isinstance(statement, str) else _is_without_mark(statement)
    return 0 if is_without_mark else None


def _written_bits(value: Any) -> int:
    mark = read_mark(value)
    return ALL if mark is None else ALL ^ mark.keep | mark.flip


def _compared_bits(mark: Mark, right: Any) -> int:
    """Return the compared bits; without a mask, a program means those that it sets."""
    return mark.keep if mark.keep != ALL or mark.flip else _constant_bits(right)


def _constant_bits(right: Any) -> int:
    match right:
        case int() if type(right) is int:
            return right
        case {"prefix": {"len": int(length)}}:
            return ALL ^ (ALL >> length)
        case {"set": list(elements)}:
            return reduce(or_, map(_constant_bits, elements), 0)
    return ALL


def _read_bits(value: Any) -> int | None:
    """Return the bits that an expression reads; None if it uses the mark in a way that is unknown to knft."""
    if (mark := read_mark(value)) is not None:
        return mark.keep
    match value:
        case {"concat": list(parts)}:
            return _union(map(_read_bits, parts))
        case {"map": {"key": key}}:
            return _read_bits(key)
    return 0 if _is_without_mark(value) else None


def _union(found: Iterable[int | None]) -> int | None:
    total = 0
    for bits in found:
        if bits is None:
            return None
        total |= bits
    return total


def _is_without_mark(value: Any) -> bool:
    match value:
        case {"meta": {"key": "mark"}}:
            return False
        case {"xt": extension}:
            # Old versions of libnftables list no name.
            return isinstance(extension, dict) and extension.get("name") not in _EXTENSIONS
        case dict():
            return all(map(_is_without_mark, value.values()))
        case list():
            return all(map(_is_without_mark, value))
    return True
