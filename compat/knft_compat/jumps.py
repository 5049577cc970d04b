"""Jumps from the kernel's own chains to kube-proxy's: commands that make them where they are missing."""

import shlex
from collections.abc import Iterator

from msgspec import Struct

from knft.model.names import Family
from knft_compat.rules import PROGRAMS, WAIT, comment


class Jump(Struct, frozen=True):
    """A jump that stands before all else in ``source``; ``extra`` are arguments in front of the comment."""

    table: str
    source: str
    target: str
    comment: str = ""
    extra: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The rule."""
        said = comment(self.comment) if self.comment else ()
        return (*self.extra, *said, "-j", self.target)


class EnsureJumps(Struct, frozen=True, tag="jumps"):
    """Jumps to be made, each in front of those before it, together with the chains that they lead to."""

    family: Family
    jumps: tuple[Jump, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield a command for each chain, and one that looks for the jump and inserts it where there is none."""
        for jump in self.jumps:
            yield f"{self._command(jump, '-N', jump.target)} 2>/dev/null || true"
            check = self._command(jump, "-C", jump.source, *jump.arguments)
            yield f"{check} 2>/dev/null || {self._command(jump, '-I', jump.source, *jump.arguments)}"

    def _command(self, jump: Jump, action: str, chain: str, *arguments: str) -> str:
        return shlex.join((PROGRAMS[self.family], *WAIT, action, chain, "-t", jump.table, *arguments))


class RemoveJumps(Struct, frozen=True, tag="jumps-removed"):
    """Jumps to be taken away where they are."""

    family: Family
    jumps: tuple[Jump, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield a command for each."""
        for jump in self.jumps:
            words = (PROGRAMS[self.family], *WAIT, "-D", jump.source, "-t", jump.table, *jump.arguments)
            yield f"{shlex.join(words)} 2>/dev/null || true"
