"""Names in docstrings and comments, such as ``Proxier.sync``, exist in the code, so that a renamed one is noticed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.docs.references import ROOT, text_files

_QUOTED = re.compile(r"``([A-Za-z_][\w.]*)``")
_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"(?:^|\s)# .*$")
FROM_KUBE_PROXY = {"setupNFTables", "EnableNFTables", "externalSetMarkChain"}


class Names(NamedTuple):
    """The words of code, and the names in its docstrings and comments with the numbers of their lines."""

    words: set[str]
    quoted: list[tuple[int, str]]


def _docstring_lines(source: str) -> set[int]:
    """Return the lines of docstrings, also those of attributes."""
    bodies = (getattr(node, "body", None) for node in ast.walk(ast.parse(source)))
    statements = (statement for body in bodies if isinstance(body, list) for statement in body)
    texts = (each for each in statements if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    return {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}


def _names(path: Path) -> Names:
    source = path.read_text(encoding="utf-8")
    docstrings = _docstring_lines(source) if path.suffix == ".py" else set[int]()
    found = Names(set(path.with_suffix("").relative_to(ROOT).parts), [])
    for number, line in enumerate(source.splitlines(), 1):
        code = "" if number in docstrings else _COMMENT.sub("", line)
        found.words.update(_WORD.findall(code))
        if path.suffix == ".py" and "``" in line:
            found.quoted.extend((number, name) for name in _QUOTED.findall(line[len(code) :]))
    return found


def _missing() -> Iterator[str]:
    """Yield each name that the code does not have, and where it is."""
    files = {path: _names(path) for path in text_files() if path.suffix != ".md"}
    words = FROM_KUBE_PROXY.union(*(names.words for names in files.values()))
    for path, names in files.items():
        missing = (each for each in names.quoted if not words.issuperset(_WORD.findall(each[1])))
        yield from (f"{path.relative_to(ROOT)}:{number}: {name}" for number, name in missing)


def test_names_in_docstrings_and_comments_exist() -> None:
    assert list(_missing()) == []
