"""Calculations with the packet's mark: an expression in, ``(mark & keep) ^ flip`` out, whatever its nesting."""

from typing import Any

from msgspec import Struct

ALL = (1 << 32) - 1


class Mark(Struct, frozen=True):
    """The mark, calculated with; a constant keeps nothing."""

    keep: int = ALL
    flip: int = 0


def read_mark(value: Any) -> Mark | None:
    """Return what a value makes of the mark; None where it is made of something else, such as conntrack's mark."""
    match value:
        case int() if type(value) is int and 0 <= value <= ALL:
            return Mark(0, value)
        case {"meta": {"key": "mark"}}:
            return Mark()
        case dict() if len(value) == 1:
            ((operator, operands),) = value.items()
            if operator in _JOINED and isinstance(operands, list) and operands:
                return _joined(operator, operands)
    return None


def _joined(operator: str, operands: list[Any]) -> Mark | None:
    """Return several operands joined; libnftables 1.1 lists more than two where it can."""
    joined = read_mark(operands[0])
    for operand in operands[1:]:
        other = read_mark(operand)
        if joined is None or other is None:
            return None
        if other.keep:
            joined, other = other, joined
        if other.keep:
            return None
        joined = _JOINED[operator](joined, other.flip)
    return joined


_JOINED = {
    "&": lambda mark, constant: Mark(mark.keep & constant, mark.flip & constant),
    "|": lambda mark, constant: Mark(mark.keep & ~constant, mark.flip & ~constant | constant),
    "^": lambda mark, constant: Mark(mark.keep, mark.flip ^ constant),
}
