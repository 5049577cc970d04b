# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""All errors that knft raises on purpose.

    KnftError                 one line for the operator: what is wrong, where, what to do
    ├── UsageError            invalid flag or argument
    ├── ConfigurationError    invalid configuration, from a file or from flags: one line for each problem
    ├── NodeMismatchError     settings do not fit the node, and rules would be removed or traffic dropped
    ├── ConfigurationChangedError  the configuration file changed: the process exits, to be restarted
    ├── SourceError           manifests that cannot be read at all
    ├── CaptureError          a captured rule set that cannot be read
    ├── ApiServerError        the API server is unreachable, or a connection or response failed
    │   └── ApiStatusError    a response with an error status
    ├── ControlError          the running knft cannot be asked
    │   └── NoDaemonError     no knft process runs in this network namespace
    ├── ServingError          an HTTP server cannot listen, and --bind-address-hard-fail makes that fatal
    ├── UnsupportedError      a privilege, library or kernel feature is missing
    └── KernelError           the kernel or libnftables rejected a request
        ├── InstanceLockedError   another knft process runs in this network namespace
        └── UnavailableError  the table cannot be used now: a smaller request would not help
            ├── LibraryDiedError  libnftables crashed or hung: it is unknown whether the request was executed
            └── TableOwnedError   another process owns the table

The packages ``source``, ``kernel`` and ``apiserver`` convert errors of other libraries into these, with the original as
``__cause__``. Only the sync loop decides whether to retry.
"""


class KnftError(Exception):
    """Base class of knft's errors; the text is for the operator."""


class UsageError(KnftError):
    """A flag or an argument is wrong; the text names it."""


class ConfigurationError(KnftError):
    """A configuration is invalid; each line of the text names the file or flag, the field, and what is expected."""


class NodeMismatchError(KnftError):
    """Settings do not fit the Node objects or the machine; the first sync would remove rules or drop traffic."""


class ConfigurationChangedError(KnftError):
    """The content of the configuration file changed while the process was running."""


class SourceError(KnftError):
    """Manifests cannot be read; the text names the path."""


class CaptureError(KnftError):
    """A captured rule set cannot be read; the text names the line or the object, and the caller adds the file."""


class ApiServerError(KnftError):
    """The API server gave no usable response; the text says which server, and why."""


class ApiStatusError(ApiServerError):
    """A response with an error status; ``reason`` and ``server_message`` are from its body, in one line.

    ``status`` is HTTP's. ``retry_after`` is the value of Retry-After in seconds, or 0.
    """

    def __init__(
        self, message: str, status: int, reason: str = "", server_message: str = "", retry_after: float = 0.0
    ) -> None:
        """Store the status apart from the text, for the decision how to retry."""
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.server_message = server_message
        self.retry_after = retry_after


class ControlError(KnftError):
    """The running knft cannot be asked; the text says why, or which process answers instead."""


class NoDaemonError(ControlError):
    """No knft process runs in this network namespace; the text says what to use instead."""


class ServingError(KnftError):
    """An HTTP server cannot listen; the text names the server and the address."""


class UnsupportedError(KnftError):
    """The machine lacks something that knft needs; the text says what, and what to do."""


class ReadOnlySysctlError(UnsupportedError):
    """A sysctl has another value than it should, and this container cannot write it."""


class KernelError(KnftError):
    """A transaction or a listing failed; ``detail`` contains the messages of libnftables."""

    def __init__(self, message: str, detail: str = "") -> None:
        """Store the library's messages apart from the text."""
        super().__init__(message)
        self.detail = detail


class InstanceLockedError(KernelError):
    """Another knft process holds the lock of this network namespace; the text names it.

    ``port_id`` is that of its netlink socket, None if it is unknown.
    """

    def __init__(self, message: str, port_id: int | None = None) -> None:
        """Create the error."""
        super().__init__(message)
        self.port_id = port_id


class UnavailableError(KernelError):
    """The table cannot be used now: a smaller request would fail too.

    Unless it is a TableOwnedError, it is unknown whether the request was executed.
    """


class LibraryDiedError(UnavailableError):
    """The worker process of libnftables died or hung: it is unknown whether the request was executed."""


class TableOwnedError(UnavailableError):
    """Another process owns the table, and only it may change it."""
