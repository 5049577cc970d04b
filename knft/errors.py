"""Every error that knft raises on purpose.

    KnftError                 one line for the operator: what is wrong, where, what to do
    ├── UsageError            a flag or an argument that cannot be meant
    ├── ConfigurationError    a configuration, from a file or from flags, that cannot be meant: a line for each problem
    ├── ConfigurationChangedError  the configuration file is another: the process ends, to be started with it
    ├── SourceError           manifests that cannot be read at all
    ├── CaptureError          a captured rule set that cannot be read
    ├── ApiServerError          the API server cannot be reached, breaks off, or says no
    │   └── ApiStatusError      it answered, with a status that is not success
    ├── ServingError          probes or metrics cannot be served, and --bind-address-hard-fail says to end then
    ├── UnsupportedError      privilege, library or kernel feature that is missing
    └── KernelError           the kernel, or libnftables, refused a request
        └── UnavailableError  it would have refused any other as well, or nobody knows what became of it
            ├── LibraryDiedError  the library's process ended before it answered
            └── TableOwnedError   another process owns the table

Errors of other libraries are turned into these at the edge (``source``, ``kernel``, ``cluster``), chained, and only the
sync loop decides whether to try again.
"""


class KnftError(Exception):
    """Base of knft's errors; its text is meant for the operator."""


class UsageError(KnftError):
    """A flag or an argument is wrong; the text names it."""


class ConfigurationError(KnftError):
    """A configuration is wrong; each line of the text names the file or flag, the field, and what is wanted."""


class ConfigurationChangedError(KnftError):
    """The content of the configuration file has changed under a running process."""


class SourceError(KnftError):
    """The source of objects cannot be read; the text names the path."""


class CaptureError(KnftError):
    """A captured rule set cannot be read; the text names the line or the object, the caller puts the file in front."""


class ApiServerError(KnftError):
    """The API server gives no answer that can be used; the text says which, and why."""


class ApiStatusError(ApiServerError):
    """The API server says no: ``status`` is HTTP's, ``reason`` and ``said`` are its own words, cut and in one line.

    ``retry_after`` is how many seconds it asks to be left alone, 0 where it does not.
    """

    def __init__(
        self, message: str, status: int, reason: str = "", server_message: str = "", retry_after: float = 0.0
    ) -> None:
        """Keep what decides about the next request apart from the text."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.server_message = server_message
        self.retry_after = retry_after


class ServingError(KnftError):
    """What others ask of this process cannot be answered; the text names the server and the address."""


class UnsupportedError(KnftError):
    """The machine lacks something knft needs; the text says what, and what to do."""


class KernelError(KnftError):
    """A transaction or a listing was refused; ``detail`` holds what libnftables said about it."""

    def __init__(self, message: str, detail: str = "") -> None:
        """Keep the library's own words apart from ours."""
        super().__init__(message)
        self.detail = detail


class UnavailableError(KernelError):
    """The table cannot be worked on now, whatever the request: no smaller one would fare better."""


class LibraryDiedError(UnavailableError):
    """The library's process died or hung: nobody knows whether the request was carried out."""


class TableOwnedError(UnavailableError):
    """The table belongs to another process, which alone may change it."""
