"""What ``knft cleanup`` did: a line for each step at once, or the JSON output at the end."""

import contextlib
from typing import Literal

import msgspec
from msgspec import Struct

from knft.cli.error_output import print_error
from knft.cli.output import Output
from knft.cli.text_layout import fold
from knft.counts import format_count
from knft.errors import KernelError

MAX_NAMES = 3
"""How many names of a group a line has; the JSON output has all."""


class Step(Struct, frozen=True):
    """What happened to an object, or to a group of objects such as "ipsets".

    ``counts``: the numbers of objects of a group by kind; ``names``: the objects of a group that are kept;
    ``contents``: the numbers of objects in a table by kind; ``reason``: why an object is kept or skipped, or why it
    cannot be read or removed, "" otherwise.
    """

    object: str
    outcome: Literal["removed", "would be removed", "kept", "not found", "skipped", "failed"]
    counts: dict[str, int] = {}
    names: tuple[str, ...] = ()
    contents: dict[str, int] = {}
    reason: str = ""


class CleanupDocument(Struct, frozen=True):
    """The JSON output of ``knft cleanup``. With a failed step, the exit status is 1."""

    dry_run: bool
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]


class CleanupReport:
    """Collects the steps of a cleanup, and prints each at once unless the output is "json"."""

    def __init__(
        self, output: Output, form: Literal["text", "json"] = "text", *, dry_run: bool = False, width: int | None = None
    ) -> None:
        """Report to ``output``, in lines that are folded at ``width``; with ``dry_run``, nothing is removed."""
        self.dry_run = dry_run
        self._output = output
        self._width = width
        self._is_json = form == "json"
        self._steps: list[Step] = []
        self._warnings: list[str] = []

    def has_failed(self, name: str) -> bool:
        """Whether an object or a group could not be read or removed."""
        return any((step.object, step.outcome) == (name, "failed") for step in self._steps)

    def add(self, step: Step) -> None:
        """Report a step."""
        self._steps.append(step)
        self._print(format_step(step))

    def add_removed(
        self, name: str, counts: dict[str, int] | None = None, contents: dict[str, int] | None = None
    ) -> None:
        """Report an object or a group that was removed, or would be."""
        self.add(Step(name, "would be removed" if self.dry_run else "removed", counts or {}, contents=contents or {}))

    def warn(self, message: str) -> None:
        """Report what the user has to know besides the steps."""
        self._warnings.append(message)
        self._print(message)

    def fail(self, name: str, message: str) -> None:
        """Report that an object or a group cannot be read or removed; the other steps are still done."""
        self._steps.append(Step(name, "failed", reason=message))
        with contextlib.suppress(OSError):
            print_error(message)

    def finish(self, objects: str) -> None:
        """Print the JSON output; raise KernelError if a step failed. ``objects`` is what had to be removed."""
        if self._is_json:
            document = CleanupDocument(self.dry_run, tuple(self._steps), tuple(self._warnings))
            self._output.print(msgspec.json.encode(document).decode())
        failed = sum(step.outcome == "failed" for step in self._steps)
        if failed:
            verb = "list" if self.dry_run else "remove"
            failures = format_count(failed, "failure")
            msg = f"cannot {verb} all of {objects}: {failures}, see above; run the command again"
            raise KernelError(msg)

    def _print(self, line: str) -> None:
        if not self._is_json:
            self._output.print(fold([line], self._width).rstrip())


def format_step(step: Step) -> str:
    """Return the line about a step."""
    if step.outcome == "not found":
        return f"{step.object}: {'nothing' if step.counts else 'not'} found"
    contents = f", with {_format_counts(step.contents, ', ')}" if step.contents else ""
    # The name of a group of one kind, such as "ipsets", tells the kind.
    counts = list(map(str, step.counts.values())) if len(step.counts) == 1 else [_format_counts(step.counts, " and ")]
    outcome = " ".join(filter(None, (*counts, step.outcome)))
    names = ", ".join((*step.names[:MAX_NAMES], *(["..."] if step.names[MAX_NAMES:] else [])))
    reason = ": ".join(filter(None, (step.reason, names)))
    return f"{step.object}{contents}: {', '.join(filter(None, (outcome, reason)))}"


def _format_counts(counts: dict[str, int], separator: str) -> str:
    return separator.join(format_count(count, kind) for kind, count in counts.items())
