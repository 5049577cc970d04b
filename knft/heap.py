# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""The heap of the C library."""

import ctypes


def trim_heap() -> None:
    """Return free memory of the C library's heap to the system. It takes 1 to 10 ms."""
    # musl has no malloc_trim, and returns memory by itself.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
