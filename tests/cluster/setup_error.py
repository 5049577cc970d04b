"""SetupError, raised if the cluster cannot be built or started."""


class SetupError(Exception):
    """The cluster cannot be built or started; the message says why, and what to do."""
