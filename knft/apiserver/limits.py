"""How often the API server is asked: what qps and burst allow, and ever longer pauses while it does not answer.

Pure: the time is passed in, and so is what draws lots.
"""

from collections.abc import Callable

FIRST_PAUSE, LONGEST_PAUSE = 0.8, 30.0
"""Seconds of the first pause and of the longest, as client-go has them; a pause is between half of it and all of it."""
HEALTHY_SECONDS = 120.0
"""After so long without a failure, pauses begin anew with the first one."""


class TokenBucket:
    """Lets ``burst`` requests through at once and ``qps`` a second in the long run; all, where that is not above 0."""

    def __init__(self, qps: float, burst: int) -> None:
        """Start with a full bucket."""
        self._qps = qps
        self._burst = max(1, burst)
        self._tokens = float(self._burst)
        self._looked: float | None = None

    def take(self, now: float) -> float:
        """Take a token, also one that is still to come; return how many seconds that is from now."""
        if self._qps <= 0:
            return 0.0
        self._tokens, self._looked = self._filled(now) - 1, now
        return max(0.0, -self._tokens / self._qps)

    def allows(self, now: float) -> bool:
        """Take a token if there is one now; return whether there was."""
        if self._qps <= 0 or self._filled(now) >= 1:
            self.take(now)
            return True
        return False

    def _filled(self, now: float) -> float:
        passed = max(0.0, now - self._looked) if self._looked is not None else 0.0
        return min(float(self._burst), self._tokens + passed * self._qps)


class Backoff:
    """Pauses after failures in a row: each twice the one before, up to the longest, none of them quite the same.

    ``draw`` gives numbers from 0 to 1: clients that failed together do not come back together.
    """

    def __init__(self, draw: Callable[[], float], first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        """Start with nothing failed."""
        self._draw = draw
        self._first = first
        self._longest = longest
        self._next = first
        self._failed: float | None = None

    def pause(self, now: float) -> float:
        """Return how many seconds to wait after a failure that is known ``now``."""
        if self._failed is not None and now - self._failed >= HEALTHY_SECONDS:
            self._next = self._first
        self._failed = now
        base, self._next = self._next, min(self._longest, self._next * 2)
        return base * (1 + self._draw()) / 2

    def begin_anew(self) -> None:
        """Have the next pause be the first one."""
        self._next = self._first


class Pulse:
    """Tells how long a watch may be quiet: a server from which something came regularly is missed sooner.

    API servers send a bookmark about every minute; others send none, and may have nothing to tell for long.
    """

    def __init__(self, regular: float) -> None:
        """Something counts as regular where no gap was longer than ``regular`` seconds, for as long as that."""
        self._regular = regular
        self._since: float | None = None
        self._last = 0.0
        self.is_regular = False

    def begin(self, now: float) -> None:
        """Note that another watch begins; what is known of the server still holds."""
        self._since, self._last = now, now

    def felt(self, now: float) -> bool:
        """Note that something came; return whether it is now, and was not before, known to come regularly."""
        if self._since is None or now - self._last > self._regular:
            self._since = now
        self._last = now
        before, self.is_regular = self.is_regular, self.is_regular or now - self._since >= self._regular
        return self.is_regular and not before

    def missed(self) -> None:
        """Note that a watch was hung, or seemed so: nothing is known any more."""
        self._since, self.is_regular = None, False

    def quiet_seconds(self, otherwise: float) -> float:
        """Return how long a watch may be quiet, ``otherwise`` where nothing is known of it."""
        return min(self._regular, otherwise) if self.is_regular else otherwise
