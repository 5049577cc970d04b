"""The error that keeps the tests from running."""


class SetupError(Exception):
    """The cluster cannot be built or started; the message says why, and what to do."""
