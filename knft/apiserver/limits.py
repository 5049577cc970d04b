"""Rate limit, backoff and idle timeout of a client of the API server.

It performs no I/O: callers pass the time, in seconds of a monotonic clock, and the random generator.
"""

from collections.abc import Callable

INITIAL_DELAY, MAX_DELAY = 0.8, 30.0
"""The delays of client-go's reflector, in seconds. The actual delay is between 50 % and 100 % of it, at random."""
RESET_AFTER_SECONDS = 120.0
"""After this time without a failure, the next failure is followed by the initial delay."""


class TokenBucket:
    """Allows ``burst`` requests at once and ``qps`` per second on average; any number if ``qps`` is not positive."""

    def __init__(self, qps: float, burst: int) -> None:
        """Start with a full bucket."""
        self._qps = qps
        self._burst = max(1, burst)
        self._tokens = float(self._burst)
        self._updated_at: float | None = None

    def reserve(self, now: float) -> float:
        """Take a token, which may become available later only; return in how many seconds."""
        if self._qps <= 0:
            return 0.0
        self._tokens, self._updated_at = self._tokens_at(now) - 1, now
        return max(0.0, -self._tokens / self._qps)

    def allow(self, now: float) -> bool:
        """Take a token if one is available now; return whether it was."""
        if self._qps <= 0 or self._tokens_at(now) >= 1:
            self.reserve(now)
            return True
        return False

    def _tokens_at(self, now: float) -> float:
        elapsed = max(0.0, now - self._updated_at) if self._updated_at is not None else 0.0
        return min(float(self._burst), self._tokens + elapsed * self._qps)


class Backoff:
    """Delays after consecutive failures: each twice the one before, up to a maximum, with jitter.

    ``random_fraction`` returns numbers from 0 to 1. It spreads the retries of clients that failed at the same time.
    """

    def __init__(
        self, random_fraction: Callable[[], float], initial: float = INITIAL_DELAY, maximum: float = MAX_DELAY
    ) -> None:
        """Start without failures."""
        self._random_fraction = random_fraction
        self._initial = initial
        self._maximum = maximum
        self._next = initial
        self._failed_at: float | None = None

    def next_delay(self, now: float) -> float:
        """Return how many seconds to wait after a failure at ``now``."""
        if self._failed_at is not None and now - self._failed_at >= RESET_AFTER_SECONDS:
            self._next = self._initial
        self._failed_at = now
        base, self._next = self._next, min(self._maximum, self._next * 2)
        return base * (1 + self._random_fraction()) / 2

    def reset(self) -> None:
        """Make the next delay the initial one."""
        self._next = self._initial


class IdleTimeout:
    """Decides how long a watch may be silent before it counts as hung.

    An API server sends a bookmark about once a minute, so its silence is noticed early. Other servers send none, and
    may have no events for a long time. A server sends steadily if there are no long gaps between its data.
    """

    def __init__(self, max_gap: float) -> None:
        """Count a server as sending steadily after ``max_gap`` seconds without a longer gap between its data."""
        self._max_gap = max_gap
        self._steady_since: float | None = None
        self._last_data = 0.0
        self.sends_steadily = False

    def watch_started(self, now: float) -> None:
        """Record that a new watch starts; ``sends_steadily`` stays as it is."""
        self._steady_since, self._last_data = now, now

    def data_received(self, now: float) -> bool:
        """Record that data arrived; return whether the server sends steadily only since now."""
        if self._steady_since is None or now - self._last_data > self._max_gap:
            self._steady_since = now
        self._last_data = now
        if self.sends_steadily or now - self._steady_since < self._max_gap:
            return False
        self.sends_steadily = True
        return True

    def forget(self) -> None:
        """Record that a watch hung, or seemed to: the server does not send steadily any more."""
        self._steady_since, self.sends_steadily = None, False

    def seconds(self, default: float) -> float:
        """Return how long a watch may be silent: ``default`` unless the server sends steadily."""
        return min(self._max_gap, default) if self.sends_steadily else default
