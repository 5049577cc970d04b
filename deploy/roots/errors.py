"""RootError."""


class RootError(Exception):
    """A root directory cannot be made or used; the message says why, and what to do."""
