"""Record: one thing that was measured. What children print and the parent collects."""

import sys

import msgspec
from msgspec import Struct

KNFT, BARE, LATENCY = "knft", "bare commit", "latency"
"""What is measured beside peers, as ``proxy`` of a record."""
FULL, MEMORY, ENDED = "full sync", "memory", "ended"
"""What is measured beside changes, as ``measure``."""


class Record(Struct, frozen=True):
    """``values`` by name, whose ends are their units (_ms, _s, _mib, _us); without any, ``note`` says why."""

    proxy: str
    shape: str
    measure: str
    values: dict[str, float] = {}
    note: str = ""


def emit(record: Record) -> None:
    """Print a record as a line of JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
    sys.stdout.buffer.flush()
