"""msgspec 0.22 crashes if two threads decode a type for the first time at once: decoders are built at the import.

knft died so if the API server refused the requests of several reflectors at its start (in make test-cluster).
"""

import ast
from pathlib import Path

import pytest

import knft

PACKAGE = Path(knft.__file__).parent
THREADED = ("apiserver", "app", "kernel", "runner", "serve", "sync")


@pytest.mark.parametrize("name", THREADED)
def test_no_module_with_threads_decodes_a_type_directly(name: str) -> None:
    """``msgspec.json.decode(data, type=T)`` builds what it needs for T at the first call."""
    files = list((PACKAGE / name).rglob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "decode":
                assert "type" not in {keyword.arg for keyword in node.keywords}, f"{file}:{node.lineno}"
