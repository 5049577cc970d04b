"""ResponseBody: all framings, with the bytes split at any position."""

import gzip
import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from knft.apiserver.response_body import ResponseBody

CHUNKED = {"Transfer-Encoding": "chunked"}


class PiecewiseConnection(io.BytesIO):
    """A connection whose reads return the given pieces one by one."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__()
        self._pieces = [piece for piece in pieces if piece]

    def read1(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if size < len(piece):
            self._pieces.insert(0, piece[size:])
        return piece[:size]


def chunked(chunks: Sequence[bytes], extension: bytes = b"") -> bytes:
    return b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks if chunk) + b"0\r\n\r\n"


def split_at(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(some.lists(some.binary(max_size=40)), some.lists(some.integers(0, 2000)), some.booleans())
def test_chunked_body_is_decoded_however_it_is_split(chunks: list[bytes], places: list[int], zipped: bool) -> None:  # noqa: FBT001 - drawn
    whole = b"".join(chunks)
    sent = chunked([gzip.compress(whole)] if zipped else chunks)
    headers = CHUNKED | ({"Content-Encoding": "gzip"} if zipped else {})
    assert b"".join(ResponseBody(PiecewiseConnection(split_at(sent, places)), headers)) == whole


@given(some.lists(some.binary(min_size=1, max_size=40), min_size=1), some.integers(0, 2000))
def test_incomplete_chunked_body_is_an_error(chunks: list[bytes], place: int) -> None:
    sent = chunked(chunks)
    # The empty line after the last chunk may be missing.
    broken = sent[: place % (len(sent) - 3)]
    with pytest.raises(EOFError, match="closed in the middle"):
        list(ResponseBody(PiecewiseConnection([broken]), CHUNKED))


def test_received_chunks_are_one_piece() -> None:
    assert list(ResponseBody(PiecewiseConnection([chunked([b"one\n", b"two\n", b"three\n"], b";x=1")]), CHUNKED)) == [
        b"one\ntwo\nthree\n"
    ]


def test_body_with_content_length() -> None:
    assert list(ResponseBody(PiecewiseConnection([b"ab", b"cd"]), {"Content-Length": "4"})) == [b"ab", b"cd"]
    with pytest.raises(EOFError):
        list(ResponseBody(PiecewiseConnection([b"ab"]), {"Content-Length": "4"}))


def test_body_that_ends_with_the_connection() -> None:
    assert list(ResponseBody(PiecewiseConnection([b"ab", b"cd"]), {})) == [b"ab", b"cd"]


@pytest.mark.parametrize("size", [b"zz", b"-1", b"1_0", b"", b" ", b"+5", b"x" * 5000])
def test_invalid_chunk_size_is_an_error(size: bytes) -> None:
    with pytest.raises(ValueError, match="without a valid size"):
        list(ResponseBody(PiecewiseConnection([size + b"\r\nabc\r\n"]), CHUNKED))


def test_endless_chunk_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a valid size"):
        list(ResponseBody(PiecewiseConnection([b"0" * 5000]), CHUNKED))


def test_content_encoding_that_was_not_requested_is_an_error() -> None:
    with pytest.raises(ValueError, match="'br'"):
        ResponseBody(PiecewiseConnection([]), {"Content-Encoding": "br"})


def test_invalid_gzip_is_an_error() -> None:
    with pytest.raises(ValueError, match="gzip"):
        list(ResponseBody(PiecewiseConnection([b"not gzip at all"]), {"Content-Encoding": "gzip"}))
