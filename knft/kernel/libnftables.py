"""libnftables, as one call: a text goes in, and either it worked or KernelError says why.

One context is used from one thread; the call releases the interpreter's lock while the kernel works.
"""

import ctypes
from typing import Any, Protocol

from knft.errors import KernelError, UnsupportedError

_SONAME = "libnftables.so.1"
_MISSING = (
    "libnftables is missing ({reason}): install the package libnftables1 (Debian, Ubuntu) or nftables-libs (Fedora)"
)


class Commands(Protocol):
    """What carries out nft commands."""

    def run(self, commands: str) -> str:
        """Carry ``commands`` out as one transaction; raise KernelError where they are refused."""


def _context() -> Any:  # noqa: ANN401 - the binding has no types
    try:
        import nftables  # type: ignore[import-untyped]  # noqa: PLC0415 - `knft --help` must not need it
    except ImportError as error:
        msg = f"the Python binding 'nftables' is missing ({error}): install pip-nftables, or python3-nftables"
        raise UnsupportedError(msg) from error
    try:
        # Asked for by itself first: where it is missing, the binding of PyPI also complains from its destructor.
        ctypes.CDLL(_SONAME)
        return nftables.Nftables()
    except (OSError, AttributeError) as error:
        raise UnsupportedError(_MISSING.format(reason=error)) from error


class Library:
    """A libnftables context that reads JSON, and text where the input is not JSON."""

    def __init__(self) -> None:
        """Load the library; raise UnsupportedError where it cannot be loaded."""
        self._context = _context()
        # With JSON output the library tries its JSON parser first, and then the one for text.
        self._context.set_json_output(True)

    def run(self, commands: str) -> str:
        """Carry out commands as one transaction; return what the library printed.

        Raises KernelError with the library's own words; then nothing has changed.
        """
        status, output, error = self._context.cmd(commands)
        if status != 0:
            detail = (error or "").strip()
            first_line = detail.partition("\n")[0] or f"status {status}"
            msg = f"libnftables: {first_line}"
            raise KernelError(msg, detail)
        return str(output)
