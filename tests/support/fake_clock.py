"""FakeClock: a clock that a test sets."""


class FakeClock:
    """A monotonic clock, in seconds; a test sets or increases ``now``."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
