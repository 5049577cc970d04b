"""Records: single measurements, which children print and the parent collects."""

import sys

import msgspec
from msgspec import Struct

KNFT, BARE, LATENCY = "knft", "bare commit", "latency"
"""Values of ``proxy`` other than peers."""
FULL, MEMORY, ENDED = "full sync", "memory", "ended"
"""Values of ``measure`` other than kinds of change."""


class Record(Struct, frozen=True):
    """``values`` by name, whose suffix is the unit (_ms, _s, _mib, _us); without values, ``note`` is the reason."""

    proxy: str
    shape: str
    measure: str
    values: dict[str, float] = {}
    note: str = ""


def emit(record: Record) -> None:
    """Print a record as a line of JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
    sys.stdout.buffer.flush()
