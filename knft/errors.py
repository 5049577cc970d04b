"""Every error that knft raises on purpose.

    KnftError                 one line for the operator: what is wrong, where, what to do
    ├── UsageError            a flag or an argument that cannot be meant
    ├── SourceError           manifests that cannot be read at all
    ├── UnsupportedError      privilege, library or kernel feature that is missing
    └── KernelError           the kernel, or libnftables, refused a request
        └── LibraryDiedError  the library's process ended before it answered

Errors of other libraries are turned into these at the edge (``source``, ``kernel``), chained, and only the
sync loop decides whether to try again.
"""


class KnftError(Exception):
    """Base of knft's errors; its text is meant for the operator."""


class UsageError(KnftError):
    """A flag or an argument is wrong; the text names it."""


class SourceError(KnftError):
    """The source of objects cannot be read; the text names the path."""


class UnsupportedError(KnftError):
    """The machine lacks something knft needs; the text says what, and what to do."""


class KernelError(KnftError):
    """A transaction or a listing was refused; ``detail`` holds what libnftables said about it."""

    def __init__(self, message: str, detail: str = "") -> None:
        """Keep the library's own words apart from ours."""
        super().__init__(message)
        self.detail = detail


class LibraryDiedError(KernelError):
    """The library's process died or hung: nobody knows whether the request was carried out."""
