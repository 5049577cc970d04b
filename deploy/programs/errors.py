"""SetupError, raised if a program cannot be built or a cluster cannot be started."""


class SetupError(Exception):
    """A program cannot be built, or a cluster cannot be started; the message says why, and what to do."""
