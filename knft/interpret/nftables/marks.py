"""Reads expressions that calculate with the packet's mark: each, however nested, becomes ``(mark & keep) ^ flip``."""

from typing import Any

from msgspec import Struct

ALL = (1 << 32) - 1


class Mark(Struct, frozen=True):
    """The value ``(mark & keep) ^ flip``; a constant has ``keep=0``."""

    keep: int = ALL
    flip: int = 0


def read_mark(value: Any) -> Mark | None:
    """Return the calculation of an expression; None if it has other inputs, such as the conntrack mark."""
    match value:
        case int() if type(value) is int and 0 <= value <= ALL:
            return Mark(0, value)
        case {"meta": {"key": "mark"}}:
            return Mark()
        case dict() if len(value) == 1:
            ((operator, operands),) = value.items()
            if operator in _OPERATORS and isinstance(operands, list) and operands:
                return _combine(operator, operands)
    return None


def _combine(operator: str, operands: list[Any]) -> Mark | None:
    """Return an operator applied to its operands; libnftables 1.1 may list more than two."""
    combined = read_mark(operands[0])
    for operand in operands[1:]:
        other = read_mark(operand)
        if combined is None or other is None:
            return None
        if other.keep:
            combined, other = other, combined
        if other.keep:
            return None
        combined = _OPERATORS[operator](combined, other.flip)
    return combined


_OPERATORS = {
    "&": lambda mark, constant: Mark(mark.keep & constant, mark.flip & constant),
    "|": lambda mark, constant: Mark(mark.keep & ~constant, mark.flip & ~constant | constant),
    "^": lambda mark, constant: Mark(mark.keep, mark.flip ^ constant),
}
