"""Errors that end a run before its tests have a result."""


class VmError(Exception):
    """The virtual machine cannot be started, or did not finish; the message is printed."""
