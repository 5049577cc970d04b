"""Reminders: messages about conditions that last are repeated, with growing intervals."""

from collections.abc import Iterable

from msgspec import Struct

FIRST_SECONDS = 60.0
MAX_SECONDS = 3600.0


class _Reminder(Struct, frozen=True):
    """When the message is due, and the interval after that, in seconds."""

    due: float
    interval: float


class Reminders:
    """The messages that are logged again while their conditions last."""

    def __init__(self) -> None:
        """Start without messages."""
        self._reminders: dict[str, _Reminder] = {}

    def update(self, messages: Iterable[str], now: float) -> list[str]:
        """Return the messages that are due at ``now``, in seconds; ``messages`` are those whose conditions last.

        A new message is due after ``FIRST_SECONDS``, then after intervals that double up to ``MAX_SECONDS``.
        """
        first = _Reminder(now + FIRST_SECONDS, 2 * FIRST_SECONDS)
        self._reminders = {message: self._reminders.get(message, first) for message in messages}
        due = [message for message, reminder in self._reminders.items() if reminder.due <= now]
        for message in due:
            interval = self._reminders[message].interval
            self._reminders[message] = _Reminder(now + interval, min(2 * interval, MAX_SECONDS))
        return due
