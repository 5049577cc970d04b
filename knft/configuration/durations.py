"""Durations as Go writes them, without loss: whole nanoseconds."""

from knft.config import nanoseconds

LONGEST = (1 << 63) - 1
"""What Go can hold: 292 years."""
_SECOND, _MINUTE, _HOUR = 10**9, 60 * 10**9, 3600 * 10**9


def parse(text: str) -> int | None:
    """Return the nanoseconds that ``text`` means, with its sign, or None where Go reads no duration."""
    sign = -1 if text.startswith("-") else 1
    found = nanoseconds(text[1:] if text[:1] in ("-", "+") else text)
    return None if found is None or found > LONGEST else sign * found


def written(duration: int) -> str:
    """Return a duration as Go prints it: 1h0m0s, 1m30s, 1.5s, 250ms, 0s."""
    if duration < 0:
        return f"-{written(-duration)}"
    if duration < _SECOND:
        return _below_a_second(duration)
    hours, rest = divmod(duration, _HOUR)
    minutes, rest = divmod(rest, _MINUTE)
    seconds = f"{_decimal(rest, _SECOND)}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _below_a_second(duration: int) -> str:
    for unit, name in ((10**6, "ms"), (10**3, "µs"), (1, "ns")):
        if duration >= unit:
            return f"{_decimal(duration, unit)}{name}"
    return "0s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
