"""Every reference in code, tests, messages and documentation resolves, and is to a document of the repository."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.references import ROOT, anchors, is_broken, references, text_files

_OUTSIDE = re.compile(
    r"\bbehaviour\.md [A-K]\b|\bDESIGN\.md|[( \[][A-K]\.[0-9]+(?:\([0-9]+\)|\b)(?=[],:;. )])|\bissue #?[0-9]+\b",
    re.IGNORECASE,
)
"""Sections of the project's first documents, and its issue tracker: neither is in the repository."""

_ALLOWED = {"tests/docs/test_references.py"}


def test_every_reference_resolves() -> None:
    broken = [str(reference) for path in text_files() for reference in references(path) if is_broken(reference)]

    assert not broken, "\n".join(broken)


def test_patterns_find_pages_anchors_and_tests() -> None:
    """Guards against patterns that match nothing."""
    found = [reference for path in text_files() for reference in references(path)]

    assert sum(bool(reference.anchor) for reference in found) > 50
    assert sum(bool(reference.test) for reference in found) > 5


def test_nothing_refers_to_documents_outside_the_repository() -> None:
    found = [
        f"{name}:{number}: {line.strip()[:120]}"
        for path in text_files()
        if (name := path.relative_to(ROOT).as_posix()) not in _ALLOWED
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _OUTSIDE.search(line)
    ]

    assert not found, "\n".join(found)


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)["nav"]  # noqa: S506

    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for value in (entry.values() if isinstance(entry, dict) else entry) for page in pages(value)]

    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}

    assert sorted(pages(navigation)) == sorted(written)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("## Keys {#keys}", "keys"),
        ("## Packets in flight", "packets-in-flight"),
        ("### `/healthz` and `/livez`", "healthz-and-livez"),
    ],
)
def test_anchors_are_those_of_headings(heading: str, anchor: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{heading}\n")

    assert anchors(page) == {"title", anchor}
