"""What keeps a part of a listing from being read: a form that is not interpreted, or one that no nft writes."""

from knft.errors import CaptureError


class Uninterpreted(Exception):  # noqa: N818 - it is an outcome
    """A form that this package does not know, or that the vocabulary cannot say; its rule gets an ``Unknown``."""


class Malformed(Exception):  # noqa: N818 - it becomes a CaptureError where the place is known
    """What no version of nft lists; the text says what is wrong."""


def capture_error(place: str, what: object) -> CaptureError:
    """Return an error that names the place."""
    return CaptureError(f"{place}: {what}")
