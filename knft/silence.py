"""Hides knft's log while a command computes rules: its messages are for the operator of ``knft run``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_log() -> Iterator[None]:
    """Disable knft's log inside the block."""
    logger = logging.getLogger("knft")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
