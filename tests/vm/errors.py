"""Errors of the guests before their tests have a result."""


class VmError(Exception):
    """A guest cannot be started, or did not finish; the message is printed."""


class UnsupportedHereError(VmError):
    """This machine does not let user-mode Linux run; qemu may be used instead."""
