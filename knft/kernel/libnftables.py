# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""Runs nft commands with libnftables in this process.

Use one context from one thread only. The call releases the GIL while the kernel works.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from knft.errors import KernelError, UnsupportedError
from knft.kernel.set_elements import dump_elements
from knft.kernel.worker_messages import SetPart

_SONAME = "libnftables.so.1"
_MISSING = (
    "cannot load libnftables ({reason}): install the package libnftables1 (Debian, Ubuntu) or nftables-libs (Fedora)"
)


def _create_context() -> Any:  # noqa: ANN401 - the binding has no types
    try:
        import nftables  # type: ignore[import-untyped]  # noqa: PLC0415 - `knft --help` must not need it
    except ImportError as error:
        msg = (
            f"cannot import the Python module 'nftables' ({error}): run 'pip install pip-nftables', or install the "
            "distribution's package python3-nftables"
        )
        raise UnsupportedError(msg) from error
    try:
        # Loaded here first: if it is missing, the destructor of PyPI's binding raises a second error.
        ctypes.CDLL(_SONAME)
        return nftables.Nftables()
    except (OSError, AttributeError) as error:
        raise UnsupportedError(_MISSING.format(reason=error)) from error


class Library:
    """A libnftables context that accepts JSON, and nft text if the input is not JSON. Its output is JSON."""

    def __init__(self) -> None:
        """Load the library; raise UnsupportedError if that fails."""
        self._context = _create_context()
        # With JSON output enabled the library tries the JSON parser first, then the text parser.
        self._context.set_json_output(True)

    def run(self, commands: str, *, terse: bool = False) -> str:
        """Run commands as one transaction; return what the library printed. With ``terse``, listings have no elements.

        Raises KernelError with the library's message; then nothing has changed.
        """
        self._context.set_terse_output(terse)
        status, output, error = self._context.cmd(commands)
        if status != 0:
            detail = (error or "").strip()
            first_line = detail.partition("\n")[0] or f"status {status}"
            msg = f"libnftables: {first_line}"
            raise KernelError(msg, detail)
        return str(output)

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        """Read the elements of sets and maps without libnftables; see ``knft.kernel.set_elements``."""
        dump_elements(family, table, names, receive)
