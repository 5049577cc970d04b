# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""The messages between WorkerProcess and the worker process, as MessagePack in ``knft.kernel.pipe_framing``."""

from msgspec import Struct


class Hello(Struct):
    """The worker's first message: the port ids of its netlink sockets, or the error that prevents it from working."""

    port_ids: frozenset[int] = frozenset()
    error: str = ""


class Commands(Struct, tag=True):
    """A request to run a command string as one transaction; ``terse`` listings have no elements."""

    text: str
    terse: bool = False


class ElementDump(Struct, tag=True):
    """A request for the elements of sets and maps; the answers are Elements, then an Answer."""

    family: int
    table: str
    names: tuple[str, ...]


class SetPart(Struct, array_like=True):
    """A buffer with the declaration or elements of one set or map, or its last part, without a buffer."""

    name: str
    buffer: bytes = b""
    is_last: bool = False
    has_changed: bool = False
    """In the last part: whether a transaction was committed during the dump of this set."""


class Elements(Struct, tag=True):
    """Consecutive parts of ``dump_elements``, sent together because most sets are small."""

    parts: list[SetPart]


class Answer(Struct, tag=True):
    """The result of one request: ``error`` is the first line of the library's message, ``detail`` all."""

    output: str = ""
    error: str = ""
    detail: str = ""
