"""ImageError."""


class ImageError(Exception):
    """The image cannot be built; the message says why, and what to do."""
