"""What keeps the tests from running, as opposed to a test that fails."""


class CannotRun(Exception):  # noqa: N818 - it is told to people, in one line
    """The tests cannot run here; the message says why, and what to do."""
