"""The output of one sync in mode iptables or ipvs for one family, as shell script or JSON.

It consists of parts; each part is the input of one tool, such as iptables-restore or ipset.
"""

import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from knft.families import Family

_HEREDOC_END = "END"


class ToolInput(Protocol):
    """A part: the input of one tool.

    A part is a struct that holds data. Its class has the name of what the tool does, such as BindAddresses; the
    struct's tag is the part's name, for the flag --part.
    """

    @property
    def tool(self) -> tuple[str, ...]:
        """The command that reads the text from standard input."""

    def text(self) -> Iterator[str]:
        """Yield the lines in the tool's input format; none if there is nothing to do."""


@runtime_checkable
class RunsPrograms(Protocol):
    """A part whose tool is the shell, and that cannot work without some programs."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs without which its commands fail."""


class Sysctl(Struct, frozen=True):
    """A kernel setting, by its path below ``/proc/sys``."""

    name: str
    value: int


class Sysctls(Struct, frozen=True, tag="sysctls"):
    """Kernel settings, in the order in which kube-proxy makes them."""

    settings: tuple[Sysctl, ...]
    tool = ("sysctl", "-q", "-p", "-")

    def text(self) -> Iterator[str]:
        """Yield one line for each setting."""
        for setting in self.settings:
            yield f"{setting.name} = {setting.value}"


class SyncOutput(Struct, frozen=True):
    """The parts of one family, in the order in which kube-proxy runs the tools.

    ``warnings`` name the entries that kube-proxy leaves out with an error in its log.
    """

    backend: str
    family: Family
    parts: tuple[ToolInput, ...]
    warnings: tuple[str, ...] = ()

    @property
    def part_names(self) -> tuple[str, ...]:
        """The names of all parts."""
        return tuple(part_name(part) for part in self.parts)

    def with_only_part(self, name: str) -> "SyncOutput | None":
        """Return an output with only this part, or None if there is no such part."""
        matching = tuple(part for part in self.parts if part_name(part) == name)
        return replace(self, parts=matching) if matching else None

    def part_text(self, name: str) -> str | None:
        """Return the tool's input of one part, or None if there is no such part."""
        single = self.with_only_part(name)
        return None if single is None else "".join(f"{line}\n" for part in single.parts for line in part.text())

    def programs(self) -> Iterator[str]:
        """Yield the programs without which the script would end before its last part."""
        for part in self.parts:
            if any(part.text()):
                yield from part.programs if isinstance(part, RunsPrograms) else part.tool[:1]

    def script(self) -> str:
        """Return a shell script that passes each part to its tool, and stops at the first failure."""
        lines = [f"# kube-proxy in mode {self.backend}, {self.family.value}", "set -e"]
        for part in self.parts:
            text = list(part.text())
            if text:
                quoted = shlex.join(part.tool)
                lines += ["", f"# {part_name(part)}", f"{quoted} <<'{_HEREDOC_END}'", *text, _HEREDOC_END]
        return "\n".join(lines) + "\n"

    def json(self) -> bytes:
        """Return the parts as one line of JSON."""
        content: dict[str, Any] = {"backend": self.backend, "family": self.family, "parts": []}
        for part in self.parts:
            fields = msgspec.to_builtins(part)
            del fields["type"]
            content["parts"].append({"part": part_name(part), "tool": part.tool, **fields})
        return msgspec.json.encode(content) + b"\n"


def script(outputs: Iterable[SyncOutput]) -> str:
    """Return the script of several outputs; it changes nothing if a program of any part is missing."""
    outputs = tuple(outputs)
    programs = dict.fromkeys(program for output in outputs for program in output.programs())
    return "\n".join((_program_check(programs), *(output.script() for output in outputs)))


def _program_check(programs: Iterable[str]) -> str:
    listed = shlex.join(program for program in programs if program != "sh")
    return (
        "# programs\n"
        "missing=\n"
        f"for program in {listed}; do\n"
        '    command -v "$program" >/dev/null || missing="$missing $program"\n'
        "done\n"
        '[ -z "$missing" ] || { echo "nothing was changed, because programs are missing:$missing" >&2; exit 1; }\n'
    )


def part_name(part: ToolInput) -> str:
    """Return the name of a part, as in the flag --part."""
    tag = type(part).__struct_config__.tag  # type: ignore[attr-defined]
    return str(tag)
