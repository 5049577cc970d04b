"""TrixieError, raised if the tests cannot be started on Debian 13."""


class TrixieError(Exception):
    """The tests cannot run; the message says why, and what to do."""
