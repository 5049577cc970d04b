"""One log line about many Services: it names a few and counts the rest."""

from collections.abc import Sequence

MAX_MESSAGES = 3
"""Most messages in one line."""


def summarize(messages: Sequence[object], what: str) -> str:
    """Return a log message: the only message, or the number of messages, ``what`` they are about, and the first few."""
    shown = "; ".join(str(message) for message in messages[:MAX_MESSAGES])
    if len(messages) <= 1:
        return shown
    rest = len(messages) - MAX_MESSAGES
    return f"{len(messages)} {what}: {shown}" + (f"; and {rest} more" if rest > 0 else "")
