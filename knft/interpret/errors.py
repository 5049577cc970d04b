"""The error of the readers of captures for a form that they do not interpret.

Text that no tool prints is a ``knft.errors.CaptureError`` instead.
"""


class NotInterpretedError(Exception):
    """An option or an expression is valid but not interpreted; the reader catches this and adds an ``Unknown`` step."""
