"""Reads the body of an HTTP response in pieces as large as what has arrived.

``http.client`` returns one chunk of a chunked body at a time, and the API server sends one chunk for each event.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO

_READ_SIZE = 256 << 10
_MAX_SIZE_LINE = 1 << 10
_CRLF = 2
_GZIP = 31
"""zlib's wbits for gzip with the largest window."""


class ResponseBody:
    """The body of one response; iterate over it for decoded bytes."""

    def __init__(self, file: BinaryIO, headers: Mapping[str, str]) -> None:
        """Read from ``file`` as the headers say; raise ValueError for an encoding that was not requested."""
        self._file = file
        self._chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
        length = headers.get("Content-Length")
        self._remaining = int(length) if length is not None and not self._chunked else None
        encoding = headers.get("Content-Encoding", "").lower()
        if encoding not in ("", "identity", "gzip"):
            msg = f"the response has the content encoding {encoding!r}, which was not requested"
            raise ValueError(msg)
        self._decompressor = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def __iter__(self) -> Iterator[bytes]:
        """Yield the body; raise EOFError if it is incomplete, ValueError if its framing or compression is wrong."""
        for piece in _ChunkedBody(self._file) if self._chunked else self._plain():
            data = self._decompressed(piece)
            if data:
                yield data

    def _plain(self) -> Iterator[bytes]:
        while self._remaining is None or self._remaining > 0:
            piece = self._file.read1(_READ_SIZE)  # type: ignore[attr-defined]
            if not piece:
                if self._remaining is None:
                    return
                raise _incomplete()
            if self._remaining is not None:
                self._remaining -= len(piece)
            yield piece

    def _decompressed(self, piece: bytes) -> bytes:
        if self._decompressor is None:
            return piece
        try:
            return self._decompressor.decompress(piece)
        except zlib.error as error:
            msg = f"the response is not valid gzip: {error}"
            raise ValueError(msg) from error


class _ChunkedBody:
    """A body with ``Transfer-Encoding: chunked``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        buffer, chunk_left = b"", 0
        while True:
            piece = self._file.read1(_READ_SIZE)  # type: ignore[attr-defined]
            if not piece:
                raise _incomplete()
            buffer += piece
            decoded: list[bytes] = []
            buffer, chunk_left, ended = _decode_chunks(buffer, chunk_left, decoded)
            if decoded:
                yield b"".join(decoded)
            if ended:
                return


def _decode_chunks(buffer: bytes, chunk_left: int, decoded: list[bytes]) -> tuple[bytes, int, bool]:
    """Append the data in ``buffer`` to ``decoded``.

    ``chunk_left`` is how many bytes of the current chunk are missing, its CRLF included. Returns the bytes that are not
    decoded yet, the new ``chunk_left``, and whether the last chunk has arrived.
    """
    position, end = 0, len(buffer)
    while position < end:
        if chunk_left:
            step = min(chunk_left, end - position)
            data = min(step, chunk_left - _CRLF)
            if data > 0:
                decoded.append(buffer[position : position + data])
            position, chunk_left = position + step, chunk_left - step
            continue
        line_end = buffer.find(b"\r\n", position)
        if line_end < 0:
            if end - position > _MAX_SIZE_LINE:
                raise _invalid_size()
            break
        size = _chunk_size(buffer[position:line_end])
        if size == 0:
            return b"", 0, True
        position, chunk_left = line_end + _CRLF, size + _CRLF
    return buffer[position:], chunk_left, False


def _chunk_size(line: bytes) -> int:
    text = line.partition(b";")[0].strip()
    # int() accepts signs and underscores too.
    if not text.isalnum():
        raise _invalid_size()
    try:
        return int(text, 16)
    except ValueError:
        raise _invalid_size() from None


def _invalid_size() -> ValueError:
    return ValueError("the response has a chunk without a valid size")


def _incomplete() -> EOFError:
    return EOFError("the connection was closed in the middle of a response")
