"""Tests of parsing requests and encoding responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.serve.http_message import BadRequestError, Request, Response, encode, head_length, parse_request

VALID_HEADS = {
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n": Request("GET", "/"),
    b"GET /healthz HTTP/1.0\r\n\r\n": Request("GET", "/healthz"),
    b"HEAD /healthz?verbose=1&a=b HTTP/1.1\r\nHost:\r\nX-Odd: \xff\t\r\n\r\n": Request("HEAD", "/healthz"),
    b"GET http://node:10256/livez?x HTTP/1.1\r\nHost: node\r\n\r\n": Request("GET", "/livez"),
    b"GET HTTPS://node HTTP/1.1\r\nHost: node\r\n\r\n": Request("GET", "/"),
    b"OPTIONS * HTTP/1.1\r\nHost: node\r\n\r\n": Request("OPTIONS", "*"),
    b"GET /healthz HTTP/1.1\nHost: a\n\n": Request("GET", "/healthz"),
}

INVALID_HEADS = {
    b"\r\n\r\n": 400,
    b"GET /healthz\r\n\r\n": 400,
    b"GET  /healthz HTTP/1.1\r\n\r\n": 400,
    b"GET /a b HTTP/1.1\r\n\r\n": 400,
    b"GET /\x00 HTTP/1.1\r\n\r\n": 400,
    b"GET /\xc3\xa4 HTTP/1.1\r\n\r\n": 400,
    b"G{T / HTTP/1.1\r\n\r\n": 400,
    b"GET / HTTP/11\r\n\r\n": 400,
    b"GET / http/1.1\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nspace : a\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nA: \x00\r\n\r\n": 400,
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n": 400,
    b"PRI * HTTP/2.0\r\n\r\n": 505,
}


@pytest.mark.parametrize("head", VALID_HEADS)
def test_valid_requests_are_parsed(head: bytes) -> None:
    assert head_length(head, 0) == len(head)
    assert parse_request(head) == VALID_HEADS[head]


@pytest.mark.parametrize("head", INVALID_HEADS)
def test_invalid_requests_are_refused(head: bytes) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_request(head)
    assert refused.value.status == INVALID_HEADS[head]


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([b"GET", b" ", b"/", b"HTTP/1.1", b"\r\n", b":", b"a"])).map(b"".join)
)
def test_any_bytes_are_parsed_or_refused(head: bytes) -> None:
    try:
        request = parse_request(head)
    except BadRequestError:
        return
    assert request.method.isascii()
    assert request.path


@given(st.data(), st.sampled_from(sorted(VALID_HEADS)))
def test_end_of_head_is_found_in_any_fragmentation(data: st.DataObject, head: bytes) -> None:
    received = bytearray()
    while received != head:
        searched = len(received)
        assert head_length(received, searched) is None
        received += head[searched : searched + data.draw(st.integers(1, 9))]
        if (found := head_length(received, searched)) is not None:
            assert found == len(head)
            assert received == head


def test_response_has_only_necessary_headers() -> None:
    """In particular it does not reveal the implementation."""
    sent = encode(Response(200, b"ok"), 0.0, with_body=True)
    assert sent == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
        b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    )
    assert encode(Response(200, b"ok"), 0.0, with_body=False) == sent[:-2]
