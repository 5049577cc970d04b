"""What keeps the tests from running, as opposed to a test that fails."""


class SetupError(Exception):
    """The cluster cannot be built or started here; the message says why, and what to do."""
