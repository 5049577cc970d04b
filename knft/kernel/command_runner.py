"""CommandRunner: what the daemon's modules need of libnftables."""

from collections.abc import Callable, Sequence
from typing import Protocol

from knft.kernel.worker_messages import SetPart


class CommandRunner(Protocol):
    """Something that runs nft commands and reads elements: Library or WorkerProcess."""

    def run(self, commands: str, *, terse: bool = False) -> str:
        """Run ``commands`` as one transaction and return the output; raise KernelError if they are refused.

        With ``terse``, listings have no elements of sets and maps.
        """

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        """Read the elements of sets and maps; see ``knft.kernel.set_elements``."""
