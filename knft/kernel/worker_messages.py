# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""The messages between WorkerProcess and the worker process, as bytes in ``knft.kernel.pipe_framing``.

A message is a letter for its kind, then fields: the length of each, and its bytes. The worker process imports no
package for them (docs/design/worker-process.md).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_NUMBER_BYTES = 8
_IS_LAST, _HAS_CHANGED = 1, 2


class Hello(NamedTuple):
    """The worker's first message: the port ids of its netlink sockets, or the error that prevents it from working."""

    port_ids: frozenset[int] = frozenset()
    error: str = ""


class Commands(NamedTuple):
    """A request to run a command string as one transaction; ``terse`` listings have no elements."""

    text: str
    terse: bool = False


class ElementDump(NamedTuple):
    """A request for the elements of sets and maps; the answers are Elements, then an Answer."""

    family: int
    table: str
    names: tuple[str, ...]


class SetPart(NamedTuple):
    """A buffer with the declaration or elements of one set or map, or its last part, without a buffer."""

    name: str
    buffer: bytes = b""
    is_last: bool = False
    has_changed: bool = False
    """In the last part: whether a transaction was committed during the dump of this set."""


class Elements(NamedTuple):
    """Consecutive parts of ``dump_elements``, sent together because most sets are small."""

    parts: tuple[SetPart, ...]


class Answer(NamedTuple):
    """The result of one request: ``error`` is the first line of the library's message, ``detail`` all."""

    output: str = ""
    error: str = ""
    detail: str = ""


def encode_request(request: Commands | ElementDump) -> bytes:
    """Return the bytes of a request."""
    match request:
        case Commands(text, terse):
            return _encoded(b"c", (bytes([terse]), text.encode()))
        case ElementDump(family, table, names):
            return _encoded(b"d", (bytes([family]), table.encode(), *(name.encode() for name in names)))


def decode_request(message: bytes) -> Commands | ElementDump:
    """Return a request; raise ValueError if it is none."""
    kind, fields = _decoded(message)
    match kind, fields:
        case b"c", [terse, text]:
            return Commands(_text(text), terse=bool(_value(terse)))
        case b"d", [family, table, *names]:
            return ElementDump(_value(family), _text(table), tuple(map(_text, names)))
    raise _unexpected(kind)


def encode_answer(answer: Hello | Elements | Answer) -> bytes:
    """Return the bytes of an answer."""
    match answer:
        case Hello(port_ids, error):
            return _encoded(b"h", (error.encode(), *map(_number, port_ids)))
        case Elements(parts):
            return _encoded(b"e", _part_fields(parts))
        case Answer(output, error, detail):
            return _encoded(b"a", (output.encode(), error.encode(), detail.encode()))


def decode_answer(message: bytes) -> Hello | Elements | Answer:
    """Return an answer; raise ValueError if it is none."""
    kind, fields = _decoded(message)
    match kind, fields:
        case b"h", [error, *port_ids]:
            return Hello(frozenset(map(_value, port_ids)), _text(error))
        case b"e", _:
            triples = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
            return Elements(tuple(_part(*triple) for triple in triples))
        case b"a", [output, error, detail]:
            return Answer(_text(output), _text(error), _text(detail))
    raise _unexpected(kind)


def _part_fields(parts: Iterable[SetPart]) -> Iterator[bytes]:
    for name, buffer, is_last, has_changed in parts:
        yield name.encode()
        yield bytes([is_last * _IS_LAST | has_changed * _HAS_CHANGED])
        yield buffer


def _part(name: memoryview, flags: memoryview, buffer: memoryview) -> SetPart:
    found = _value(flags)
    return SetPart(_text(name), bytes(buffer), bool(found & _IS_LAST), bool(found & _HAS_CHANGED))


def _encoded(kind: bytes, fields: Iterable[bytes]) -> bytes:
    pieces = [kind]
    for field in fields:
        pieces += (_number(len(field)), field)
    return b"".join(pieces)


def _decoded(message: bytes) -> tuple[bytes, list[memoryview]]:
    """Return the kind and the fields, without a copy; raise ValueError if the message is not complete."""
    view, fields, start = memoryview(message), [], 1
    while start < len(message):
        begin = start + _NUMBER_BYTES
        start = begin + _value(view[start:begin])
        fields.append(view[begin:start])
    if start != max(len(message), 1):
        msg = f"a message ends after {len(message)} bytes, its fields after {start}"
        raise ValueError(msg)
    return message[:1], fields


def _number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_BYTES, "little")


def _value(field: memoryview) -> int:
    return int.from_bytes(field, "little")


def _text(field: memoryview) -> str:
    return str(field, "utf-8")


def _unexpected(kind: bytes) -> ValueError:
    return ValueError(f"unexpected message of kind {kind!r}")
