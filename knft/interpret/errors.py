"""The error for forms that the readers of captures do not interpret, and the quotation of text in errors.

Text that no tool prints raises a ``knft.errors.CaptureError`` instead.
"""


class NotInterpretedError(Exception):
    """An option or an expression is valid but not interpreted; the reader catches this and adds an ``Unknown`` step."""


def abbreviated(text: str) -> str:
    """Return text for an error message: quoted, at most 60 characters, without control characters."""
    longest = 60
    return repr(text if len(text) <= longest else f"{text[:longest]}...")
