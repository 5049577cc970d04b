"""A minimal HTTP client, in which the test controls every byte."""

import socket
from contextlib import suppress

from msgspec import Struct

TIMEOUT_SECONDS = 20.0


class HttpResponse(Struct, frozen=True):
    """A response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def send_and_receive(address: str, port: int, sent: bytes) -> bytes:
    """Send bytes, and return all bytes until the server closes the connection; b"" if it resets the connection."""
    received = bytearray()
    with socket.create_connection((address, port), TIMEOUT_SECONDS) as connection, suppress(ConnectionError):
        connection.sendall(sent)
        while piece := connection.recv(65536):
            received += piece
    return bytes(received)


def parse_response(received: bytes) -> HttpResponse:
    """Return the response that the received bytes contain."""
    head, _, body = received.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    version, code, _phrase = status.split(" ", 2)
    assert version == "HTTP/1.1"
    pairs = [field.split(": ", 1) for field in fields]
    headers = {name.lower(): value for name, value in pairs}
    assert len(headers) == len(pairs), "a header came twice"
    return HttpResponse(int(code), headers, body)


def http_request(address: str, port: int, path: str = "/", method: str = "GET") -> HttpResponse:
    """Send a request with curl's headers, and return the response."""
    request = f"{method} {path} HTTP/1.1\r\nHost: {address}:{port}\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n"
    return parse_response(send_and_receive(address, port, request.encode()))


def refuses_connections(address: str, port: int) -> bool:
    """Return whether nothing listens on the port."""
    try:
        socket.create_connection((address, port), TIMEOUT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        # It listened until this moment: closing a listening socket resets the connections in its accept queue.
        return False
    return False
