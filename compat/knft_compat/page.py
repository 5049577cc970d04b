"""A page: what one mode does in one sync of one family, part by part, as text for the tools or as JSON."""

import shlex
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from knft.model.names import Family

_END = "END"


class Part(Protocol):
    """What one tool is handed; a tagged struct, whose tag is the part's name."""

    @property
    def tool(self) -> tuple[str, ...]:
        """The command that reads the text from its standard input."""

    def text(self) -> Iterator[str]:
        """Yield the lines of the tool's own input format; none where there is nothing to do."""


class Sysctl(Struct, frozen=True):
    """A setting of the kernel, by its path below ``/proc/sys``."""

    name: str
    value: int


class Sysctls(Struct, frozen=True, tag="sysctls"):
    """Settings, in the order in which they are made."""

    settings: tuple[Sysctl, ...]
    tool = ("sysctl", "-q", "-p", "-")

    def text(self) -> Iterator[str]:
        """Yield a line for each."""
        for setting in self.settings:
            yield f"{setting.name} = {setting.value}"


class Page(Struct, frozen=True):
    """The parts of a family, in the order in which kube-proxy uses them."""

    backend: str
    family: Family
    parts: tuple[Part, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts."""
        return tuple(part_name(part) for part in self.parts)

    def only(self, name: str) -> "Page | None":
        """Return the page of one part, or None where there is no such part."""
        found = tuple(part for part in self.parts if part_name(part) == name)
        return replace(self, parts=found) if found else None

    def part(self, name: str) -> str | None:
        """Return what one tool reads, or None where the page has no such part."""
        page = self.only(name)
        return None if page is None else "".join(f"{line}\n" for part in page.parts for line in part.text())

    def script(self) -> str:
        """Return a shell script that hands every part to its tool, and ends where one of them fails."""
        lines = [f"# kube-proxy in mode {self.backend}, {self.family.value}", "set -e"]
        for part in self.parts:
            text = list(part.text())
            if text:
                quoted = shlex.join(part.tool)
                lines += ["", f"# {part_name(part)}", f"{quoted} <<'{_END}'", *text, _END]
        return "\n".join(lines) + "\n"

    def json(self) -> bytes:
        """Return one line of JSON."""
        content: dict[str, Any] = {"backend": self.backend, "family": self.family, "parts": []}
        for part in self.parts:
            fields = msgspec.to_builtins(part)
            del fields["type"]
            content["parts"].append({"part": part_name(part), "tool": part.tool, **fields})
        return msgspec.json.encode(content) + b"\n"


def part_name(part: Part) -> str:
    """Return the name under which a part is asked for."""
    tag = type(part).__struct_config__.tag  # type: ignore[attr-defined]
    return str(tag)
