"""References in the repository's text: to pages of docs/ and their anchors, to files, and to tests.

A reference is a path from the repository's root, with an anchor or a test: ``docs/behaviour/endpoints.md#local``,
``tests/support/trace_check.py``, ``tests/cli/test_render.py::test_…``.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".j2", ".json", ""}
_FOLDERS = ("docs", "knft", "compat", "tests", "deploy", "examples")
_PATH = re.compile(
    rf"(?<![\w/.:-])(?P<path>(?:{'|'.join(_FOLDERS)})(?:/[\w.-]+)*/[\w-]+\.(?:md|py|yaml|yml|json|sh|toml|nft|j2|css|js))"
    r"(?:#(?P<anchor>[\w-]+)|::(?P<test>test_\w+))?"
)
_LINK = re.compile(r"\]\((?!https?:)(?P<path>[\w./-]+)(?:#(?P<anchor>[\w-]+))?\)")
_BLOCK_ANCHOR = re.compile(r"<a id=\"(?P<anchor>[\w-]+)\"></a>")
_HEADING = re.compile(r"^#{1,6} (?P<title>.+?)(?: \{#(?P<anchor>[\w-]+)\})?$", re.MULTILINE)


class Reference(NamedTuple):
    """A reference: the file and line that hold it, the file it names, and an anchor or test in that file ("": none)."""

    file: str
    line: int
    path: str
    anchor: str
    test: str

    def __str__(self) -> str:
        part = f"#{self.anchor}" if self.anchor else f"::{self.test}" if self.test else ""
        return f"{self.file}:{self.line}: {self.path}{part}"


def text_files() -> list[Path]:
    """Return the files that people read: those that git tracks or would track, without golden files and captures."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name and Path(name).suffix in _TEXT]
    return [path for path in paths if path.is_file()]


def references(path: Path) -> Iterator[Reference]:
    """Yield the references of a file; those of Markdown links are resolved to paths from the root."""
    name = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for match in _PATH.finditer(line):
            yield Reference(name, number, match["path"], match["anchor"] or "", match["test"] or "")
        if path.suffix == ".md":
            for match in _LINK.finditer(line):
                target = (path.parent / match["path"]).resolve()
                yield Reference(name, number, target.relative_to(ROOT).as_posix(), match["anchor"] or "", "")


def is_broken(reference: Reference) -> bool:
    """Return whether the file, anchor or test that a reference names is missing."""
    path = ROOT / reference.path
    if not path.exists():
        return True
    if reference.anchor:
        return reference.anchor not in anchors(path)
    return bool(reference.test) and f"def {reference.test}(" not in path.read_text(encoding="utf-8")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a Markdown page: of headings, and of other blocks (``<a id="anchor"></a>``)."""
    text = page.read_text(encoding="utf-8")
    headings = {heading["anchor"] or _slug(heading["title"]) for heading in _HEADING.finditer(text)}
    return frozenset(headings | {block["anchor"] for block in _BLOCK_ANCHOR.finditer(text)})


def _slug(title: str) -> str:
    """Return a heading's anchor as the site makes it."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
