"""What keeps the tests from running, as opposed to a test that fails."""


class Problem(Exception):  # noqa: N818 - it is told to people, in one line
    """The cluster cannot be built or started here; the message says why, and what to do."""
