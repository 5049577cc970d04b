# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Names that other programs choose, in a form for logs."""


def printable_name(payload: bytes) -> str:
    """Return a name for logs. Other programs choose it, so unprintable characters are replaced."""
    decoded = payload.rstrip(b"\0").decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in decoded)
