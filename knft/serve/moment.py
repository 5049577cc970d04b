"""Moments: what time it is, for people and for ages."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct

_NANOSECONDS = 1_000_000_000


class Moment(Struct, frozen=True):
    """A moment by two clocks: ``wall`` in nanoseconds since 1970, to be shown; ``steady`` in seconds, for ages.

    Somebody may set the machine's clock: that makes nothing late.
    """

    wall: int
    steady: float

    @property
    def timestamp(self) -> float:
        """Seconds since 1970."""
        return self.wall / _NANOSECONDS

    def __str__(self) -> str:
        """Return the moment as RFC 3339 in UTC, to the nanosecond and without zeros at the end, as Go writes it."""
        seconds, rest = divmod(self.wall, _NANOSECONDS)
        fraction = f".{rest:09}".rstrip("0") if rest else ""
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


Clock = Callable[[], Moment]


def now() -> Moment:
    """Return the moment by the machine's clocks."""
    return Moment(time.time_ns(), time.monotonic())
