"""Counts bytecode instructions: the cost of a sync in Python, independent of the machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_bytecode_steps(work: Callable[[], object]) -> int:
    """Call ``work`` and return how many bytecode instructions this thread executed, without C code."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
