"""A clock that the test sets."""

import threading

from knft.serve.timestamp import Timestamp

START = 1_780_000_000
"""2026-05-28T20:26:40Z, in seconds since 1970."""


class FakeTimestamps:
    """``pass_time`` advances the wall clock and the monotonic clock; ``set_wall`` sets the wall clock alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wall = START * 10**9
        self._steady = 1000.0

    def __call__(self) -> Timestamp:
        with self._lock:
            return Timestamp(self._wall, self._steady)

    def pass_time(self, seconds: float) -> None:
        with self._lock:
            self._wall += int(seconds * 10**9)
            self._steady += seconds

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock to ``seconds`` after the start, as an administrator could."""
        with self._lock:
            self._wall = int((START + seconds) * 10**9)

    @property
    def seconds(self) -> float:
        """Seconds since 1970."""
        return self().unix_seconds
