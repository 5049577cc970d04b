"""Test code that several folders use is in ``tests/support``, or in the folder of a job, whose tools others may use."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SUPPORT = "support"
JOBS = {"bench", "cluster", "packages", "parity"}
"""Jobs (docs/verification.md#jobs) whose modules other folders import."""


def _imports(path: Path) -> Iterator[str]:
    """Yield the folder of each imported module of ``tests``."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("tests."))


@pytest.mark.parametrize("folder", sorted(path.name for path in TESTS.iterdir() if any(path.glob("**/*.py"))))
def test_helpers_of_other_folders_are_in_support(folder: str) -> None:
    """``tests/jobs`` tests the tools of the jobs, so it imports modules of all of them."""
    allowed = {folder, SUPPORT} | (JOBS if folder != SUPPORT else set())
    files = () if folder == "jobs" else sorted((TESTS / folder).rglob("*.py"))
    assert {(str(path), name) for path in files for name in _imports(path) if name not in allowed} == set()
