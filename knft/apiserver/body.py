"""Body: the bytes of an answer that goes on, as many at once as have come.

http.client hands out one chunk of a chunked answer at a time, and a server that streams sends one for each event.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO

_READ = 256 << 10
"""How many bytes are taken at the most at once."""
_LONGEST_SIZE_LINE = 1 << 10
_LINE_END = 2
_GZIP = 31
"""zlib's number for gzip with the largest window."""


class Body:
    """What follows the head of an HTTP answer."""

    def __init__(self, file: BinaryIO, headers: Mapping[str, str]) -> None:
        """Read from ``file`` what ``headers`` announce; raise ValueError where nobody can."""
        self._file = file
        self._chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
        length = headers.get("Content-Length")
        self._left = int(length) if length is not None and not self._chunked else None
        encoding = headers.get("Content-Encoding", "").lower()
        if encoding not in ("", "identity", "gzip"):
            msg = f"it answers in the encoding {encoding!r}, which was not asked for"
            raise ValueError(msg)
        self._unzip = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def __iter__(self) -> Iterator[bytes]:
        """Yield what comes; raise EOFError where it ends too early, ValueError where it is not what was announced."""
        for piece in _Chunks(self._file) if self._chunked else self._plain():
            plain = self._unzipped(piece)
            if plain:
                yield plain

    def _plain(self) -> Iterator[bytes]:
        while self._left is None or self._left > 0:
            piece = self._file.read1(_READ)  # type: ignore[attr-defined]
            if not piece:
                if self._left is None:
                    return
                raise _early()
            if self._left is not None:
                self._left -= len(piece)
            yield piece

    def _unzipped(self, piece: bytes) -> bytes:
        if self._unzip is None:
            return piece
        try:
            return self._unzip.decompress(piece)
        except zlib.error as error:
            msg = f"its gzip is broken: {error}"
            raise ValueError(msg) from error


class _Chunks:
    """A chunked answer, taken apart."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        held, left = b"", 0
        while True:
            piece = self._file.read1(_READ)  # type: ignore[attr-defined]
            if not piece:
                raise _early()
            held += piece
            found: list[bytes] = []
            held, left, ended = _take(held, left, found)
            if found:
                yield b"".join(found)
            if ended:
                return


def _take(held: bytes, left: int, found: list[bytes]) -> tuple[bytes, int, bool]:
    """Move what has come of chunks from ``held`` to ``found``.

    ``left`` is how much of the present chunk is to come, its line end included. Returns what is still held, what is
    left, and whether the last chunk has come.
    """
    position, end = 0, len(held)
    while position < end:
        if left:
            step = min(left, end - position)
            data = min(step, left - _LINE_END)
            if data > 0:
                found.append(held[position : position + data])
            position, left = position + step, left - step
            continue
        line_end = held.find(b"\r\n", position)
        if line_end < 0:
            if end - position > _LONGEST_SIZE_LINE:
                raise _unsized()
            break
        size = _size(held[position:line_end])
        if size == 0:
            return b"", 0, True
        position, left = line_end + _LINE_END, size + _LINE_END
    return held[position:], left, False


def _size(line: bytes) -> int:
    text = line.partition(b";")[0].strip()
    try:
        # int() takes signs and underscores as well.
        return int(text, 16) if text.isalnum() else int("none")
    except ValueError:
        raise _unsized() from None


def _unsized() -> ValueError:
    return ValueError("it sends chunks without sizes")


def _early() -> EOFError:
    return EOFError("it breaks off in the middle of an answer")
