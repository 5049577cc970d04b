"""Timestamps: the wall clock, for display, together with the monotonic clock, for durations."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct

_NANOSECONDS = 1_000_000_000


class Timestamp(Struct, frozen=True):
    """One point in time on two clocks: ``wall_ns`` in nanoseconds since 1970, and ``monotonic`` in seconds.

    Durations are differences of ``monotonic``, so that setting the machine's clock changes no duration.
    """

    wall_ns: int
    monotonic: float

    @property
    def unix_seconds(self) -> float:
        """Seconds since 1970."""
        return self.wall_ns / _NANOSECONDS

    def __str__(self) -> str:
        """Return the wall time as RFC 3339 in UTC, in Go's format: nanoseconds, without trailing zeros."""
        seconds, rest = divmod(self.wall_ns, _NANOSECONDS)
        fraction = f".{rest:09}".rstrip("0") if rest else ""
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


Clock = Callable[[], Timestamp]


def now() -> Timestamp:
    """Return the current time of the machine's clocks."""
    return Timestamp(time.time_ns(), time.monotonic())
