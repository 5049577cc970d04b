"""Finds all regular expressions of the product, and texts on which each of them could take more than linear time."""

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined] # the only parser of regular expressions in Python
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
TEXTS_IN_TABLES = frozenset({"knft.interpret.reasons", "knft.configuration.schema_match"})
"""Modules with functions of ``re`` that get regular expressions from a table or schema, which the caller tests."""
NEVER_MATCHES = "\N{SNOWMAN}"
_MAX_LETTERS, _MAX_BEGINNINGS = 10, 12


class Use(NamedTuple):
    """A regular expression, the method that is called with it, and the module or schema that has it."""

    where: str
    pattern: "re.Pattern[Any]"
    method: str


def uses_in_code(*packages: ModuleType) -> Iterator[Use]:
    """Yield the regular expressions of all modules of packages; raise an error for one that is not a constant."""
    for package in packages:
        for item in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not item.name.endswith("__main__"):
                yield from _uses_in_module(importlib.import_module(item.name))


def _uses_in_module(module: ModuleType) -> Iterator[Use]:
    source, values = Path(str(module.__file__)).read_text(encoding="utf-8"), vars(module)
    has_compiled = any(isinstance(value, re.Pattern) for value in values.values())
    if not has_compiled and "import re\n" not in source and "pattern=" not in source:
        return  # Most modules have none, and parsing all of them would take half a second.
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
            compiled = values.get(node.value.id)
            if isinstance(compiled, re.Pattern):
                yield Use(f"{module.__name__}.{node.value.id}", compiled, node.attr)
        elif isinstance(node, ast.Call) and _is_call_of_re(node.func):
            yield from _use_of_call(module, node)
        elif isinstance(node, ast.keyword) and node.arg == "pattern":
            # A constraint of msgspec, which searches.
            yield Use(f"{module.__name__}:{node.value.lineno}", re.compile(_constant(node.value, values)), "search")


def _is_call_of_re(function: ast.expr) -> bool:
    is_method = isinstance(function, ast.Attribute) and function.attr in METHODS
    return is_method and isinstance(function.value, ast.Name) and function.value.id == "re"  # type: ignore[attr-defined]


def _use_of_call(module: ModuleType, call: ast.Call) -> Iterator[Use]:
    """Yield the use of a call such as ``re.match(text, ...)``."""
    if module.__name__ in TEXTS_IN_TABLES:
        return
    flags = {"re.MULTILINE": re.MULTILINE}.get(ast.unparse(call.args[-1]), re.NOFLAG)
    pattern = re.compile(_constant(call.args[0], vars(module)), flags)
    yield Use(f"{module.__name__}:{call.lineno}", pattern, call.func.attr)  # type: ignore[attr-defined]


def _constant(node: ast.expr, values: dict[str, Any]) -> str:
    """Return the value of a constant or of a module's variable."""
    return str(node.value if isinstance(node, ast.Constant) else values[node.id])  # type: ignore[attr-defined]


def patterns_of_schema(path: Path) -> Iterator[Use]:
    """Yield the regular expressions of a JSON schema."""
    pending = [json.loads(path.read_text(encoding="utf-8"))]
    while pending:
        item = pending.pop()
        pending += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        if isinstance(item, dict) and isinstance(item.get("pattern"), str):
            yield Use(path.name, re.compile(item["pattern"]), "search")


def attacks(pattern: "re.Pattern[Any]") -> Iterator[tuple[Any, Any, Any]]:
    """Yield texts as (beginning, repeated part, end): beginnings that match, and parts made of its letters."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    letters = sorted(set(_letters(tree)))[:_MAX_LETTERS]
    beginnings = _some(sorted(_beginnings(tree), key=lambda text: (len(text), text)))
    parts = {*map("".join, product(letters, repeat=2)), *map("".join, product(beginnings, ("", *letters)))} - {""}
    is_bytes = isinstance(pattern.pattern, bytes)
    for beginning, part in product(beginnings, sorted(parts)):
        end = NEVER_MATCHES
        yield (beginning.encode(), part.encode(), end.encode()) if is_bytes else (beginning, part, end)


def _some(texts: list[str]) -> list[str]:
    """Return the empty text, and evenly spaced ones of many texts."""
    return ["", *texts[:: 1 + len(texts) // _MAX_BEGINNINGS], *texts[-1:]]


def _letters(tree: Iterable[Any]) -> Iterator[str]:
    """Yield one letter for each literal and each class of letters."""
    for code, argument in tree:
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
            yield _letter(code, argument)
        else:
            for inner in _inner(argument):
                yield from _letters(inner)


def _inner(argument: Any) -> Iterator[Any]:
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for item in argument:
            yield from _inner(item)


def _letter(code: Any, argument: Any) -> str:
    """Return a letter that a literal or class matches."""
    if code is codes.LITERAL:
        return chr(argument)
    if code is codes.NOT_LITERAL:
        return next(letter for letter in _CANDIDATES if ord(letter) != argument)
    return _CANDIDATES[0] if code is codes.ANY else next(one for one in _CANDIDATES if _in_class(one, argument))


_CANDIDATES = ["a", "0", "A", "-", "+", " ", ".", "_", '"', "\\", *map(chr, range(1, 256))]
_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S", codes.CATEGORY_WORD: r"\w", codes.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def _in_class(letter: str, items: list[Any]) -> bool:
    is_negated = items[0][0] is codes.NEGATE
    return is_negated != any(_is_member(letter, *item) for item in items if item[0] is not codes.NEGATE)


def _is_member(letter: str, code: Any, argument: Any) -> bool:
    match code:
        case codes.LITERAL:
            return ord(letter) == int(argument)
        case codes.RANGE:
            return bool(argument[0] <= ord(letter) <= argument[1])
    return re.match(_CATEGORIES[argument], letter) is not None


def _shortest(tree: Iterable[Any]) -> Iterator[str]:
    """Yield the parts of a text that matches, with each repetition once."""
    for code, argument in tree:
        match code:
            case codes.LITERAL | codes.NOT_LITERAL | codes.IN | codes.ANY:
                yield _letter(code, argument)
            case codes.BRANCH:
                yield from _shortest(argument[1][0])
            case codes.MAX_REPEAT | codes.MIN_REPEAT | codes.POSSESSIVE_REPEAT:
                yield "".join(_shortest(argument[2])) * max(1, argument[0])
            case codes.SUBPATTERN:
                yield from _shortest(argument[3])
            case codes.ATOMIC_GROUP:
                yield from _shortest(argument)


def _beginnings(tree: Iterable[Any]) -> set[str]:
    """Return texts that match up to each part of an expression, in every branch."""
    found, before = set(), ""
    for item in tree:
        for inner in _inner(item[1]):
            found |= {before + text for text in _beginnings(inner)}
        before += "".join(_shortest([item]))
        found.add(before)
    return found
