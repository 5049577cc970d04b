"""Counts bytecode instructions: the cost of a sync in Python, independent of the machine."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class BytecodeCounter:
    """Counts bytecode instructions that this thread executes in ``run``, without C code; ``steps`` are all so far."""

    def __init__(self) -> None:
        self.steps = 0

    def run(self, work: Callable[[], object]) -> None:
        """Call ``work`` and count its instructions; no garbage collection of earlier objects can run between them."""
        before, collects = sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        self.steps += event == "opcode"
        return self._trace


def count_bytecode_steps(work: Callable[[], object]) -> int:
    """Call ``work`` and return how many bytecode instructions this thread executed, without C code."""
    counter = BytecodeCounter()
    counter.run(work)
    return counter.steps
