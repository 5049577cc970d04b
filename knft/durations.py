"""Parses and formats Go durations, such as 1m30s, in whole nanoseconds."""

import re
from fractions import Fraction

from knft.errors import UsageError

MAX_SECONDS = 366 * 86400.0
"""The longest period that flags accept: timers of the operating system are limited."""
MAX_NANOSECONDS = (1 << 63) - 1
"""The longest Go duration, 292 years."""

_SECOND, _MINUTE, _HOUR = 10**9, 60 * 10**9, 3600 * 10**9
_UNITS = {"h": _HOUR, "m": _MINUTE, "s": _SECOND, "ms": 10**6, "us": 10**3, "µs": 10**3, "μs": 10**3, "ns": 1}
_PART = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|μs|ns)")
_MAX_TEXT = 100


def parse_unsigned(text: str) -> int | None:
    """Return the nanoseconds of a duration without sign, of any length; None if ``text`` is not a duration."""
    if text == "0":
        return 0
    parts = list(_PART.finditer(text[:_MAX_TEXT]))
    if not parts or "".join(part.group() for part in parts) != text:
        return None
    return sum(int(Fraction(part.group(1)) * _UNITS[part.group(2)]) for part in parts)


def parse_duration(text: str) -> int | None:
    """Return the nanoseconds of a duration with or without sign; None if Go cannot parse or hold it."""
    sign = -1 if text.startswith("-") else 1
    found = parse_unsigned(text[1:] if text[:1] in ("-", "+") else text)
    return None if found is None or found > MAX_NANOSECONDS else sign * found


def parse_seconds(flag: str, text: str) -> float:
    """Return the seconds of a duration without sign, at most a year; raise UsageError naming ``flag``."""
    found = parse_unsigned(text)
    if found is None:
        msg = f"{flag}: {text!r} is not a duration; write it as in 1s, 500ms or 1m30s"
        raise UsageError(msg)
    seconds = found / 1e9
    if seconds > MAX_SECONDS:
        msg = f"{flag}: {text!r} is longer than a year"
        raise UsageError(msg)
    return seconds


def format_duration(nanoseconds: int) -> str:
    """Return a duration in Go's format: 1h0m0s, 1m30s, 1.5s, 250ms, 0s."""
    if nanoseconds < 0:
        return f"-{format_duration(-nanoseconds)}"
    if nanoseconds < _SECOND:
        return _format_below_a_second(nanoseconds)
    hours, rest = divmod(nanoseconds, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    seconds = f"{_decimal(rest, _SECOND)}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _format_below_a_second(nanoseconds: int) -> str:
    for unit, name in ((10**6, "ms"), (10**3, "µs"), (1, "ns")):
        if nanoseconds >= unit:
            return f"{_decimal(nanoseconds, unit)}{name}"
    return "0s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
