"""What ends a run before it has a verdict."""


class VmError(Exception):
    """The machine cannot be made, or did not come to an end; the message is for people."""
