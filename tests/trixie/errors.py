"""The error of a run whose tests cannot start."""


class CannotRun(Exception):  # noqa: N818 - printed as one line
    """The tests cannot run; the message says why, and what to do."""
