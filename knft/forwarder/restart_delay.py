"""RestartDelay: how long to wait before the forwarder's process is started again."""

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0


class RestartDelay:
    """Doubles from one second to one minute, and begins again after a process that has run for longer than that."""

    def __init__(self) -> None:
        """Start with the shortest delay."""
        self._next = FIRST_SECONDS

    def after(self, ran_seconds: float) -> float:
        """Return the delay in seconds after a process that has run for so long."""
        delay = FIRST_SECONDS if ran_seconds > LONGEST_SECONDS else self._next
        self._next = min(2 * delay, LONGEST_SECONDS)
        return delay
