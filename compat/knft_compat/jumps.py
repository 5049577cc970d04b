"""Commands that create, or remove, the jumps from built-in chains to kube-proxy's chains."""

import shlex
from collections.abc import Iterator

from msgspec import Struct

from knft.families import Family
from knft_compat.rules import PROGRAMS, WAIT, comment


class Jump(Struct, frozen=True):
    """A jump that is inserted at the top of ``source``; ``extra`` are arguments before the comment."""

    table: str
    source: str
    target: str
    comment: str = ""
    extra: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the rule."""
        comment_arguments = comment(self.comment) if self.comment else ()
        return (*self.extra, *comment_arguments, "-j", self.target)


class EnsureJumps(Struct, frozen=True, tag="jumps"):
    """Inserts missing jumps, each at the top of its chain, so the last one comes first; creates their target chains."""

    family: Family
    jumps: tuple[Jump, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield two commands for each jump: create the target chain, and insert the jump unless it exists."""
        for jump in self.jumps:
            yield f"{self._command(jump, '-N', jump.target)} 2>/dev/null || true"
            check = self._command(jump, "-C", jump.source, *jump.arguments)
            yield f"{check} 2>/dev/null || {self._command(jump, '-I', jump.source, *jump.arguments)}"

    def _command(self, jump: Jump, action: str, chain: str, *arguments: str) -> str:
        return shlex.join((PROGRAMS[self.family], *WAIT, action, chain, "-t", jump.table, *arguments))


class RemoveJumps(Struct, frozen=True, tag="jumps-removed"):
    """Removes jumps that exist."""

    family: Family
    jumps: tuple[Jump, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield one command for each jump."""
        for jump in self.jumps:
            arguments = (PROGRAMS[self.family], *WAIT, "-D", jump.source, "-t", jump.table, *jump.arguments)
            yield f"{shlex.join(arguments)} 2>/dev/null || true"
