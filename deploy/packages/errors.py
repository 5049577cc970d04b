"""PackageError."""


class PackageError(Exception):
    """A package cannot be built; the message says why, and what to do."""
