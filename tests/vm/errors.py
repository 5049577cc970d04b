"""VmError, raised if the virtual machine fails before its tests have a result."""


class VmError(Exception):
    """The virtual machine cannot be started, or did not finish; the message is printed."""
