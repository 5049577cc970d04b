"""A YAML parser that returns plain values, built from PyYAML's events.

PyYAML's own loaders recurse: a few thousand brackets crash the process. This parser limits nesting and the expansion of
aliases, reports duplicate keys, and reads scalars as kubectl does: YAML 1.1 without base 60 (2001:1:0:0:0:0:0:1 is not
a number) and without timestamps, which are text in the API. It is also faster.
"""

import re
from typing import Any, NamedTuple

import yaml
from yaml import events

from knft.errors import SourceError
from knft.source.formatting import WrittenFloat, WrittenInt, format_name, format_value

MAX_DEPTH = 100
"""Maximum nesting; API objects need a tenth of it."""
MAX_ALIASED = 200_000
"""Maximum number of values that aliases of one file expand to ("billion laughs")."""
MAX_WARNINGS = 10
"""How many duplicate keys of one document are reported."""
_LONGEST_NUMBER = 64

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYWORDS: dict[str, Any] = {
    spelling: value
    for value, spellings in ((None, ("null",)), (True, ("true", "yes", "on")), (False, ("false", "no", "off")))
    for word in spellings
    for spelling in (word, word.capitalize(), word.upper())
} | {"": None, "~": None}
_NUMBER_STARTS = frozenset("+-.0123456789")
_INTEGER = re.compile(r"([-+]?)(?:(0b[01]+)|0x([0-9a-fA-F]+)|0([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("map", "seq")}
_TEXT_TAGS = {"!", *(f"tag:yaml.org,2002:{name}" for name in ("str", "timestamp"))}
_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float")}


class Document(NamedTuple):
    """A document's value, and warnings."""

    value: Any
    warnings: tuple[str, ...]


class _Node(NamedTuple):
    """A value, the number of values it contains, and its text if it is a scalar."""

    value: Any
    size: int
    text: str | None
    merge: bool = False


class _OpenCollection:
    """A mapping or list before its end event."""

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.size = 1
        self.key: _Node | None = None
        self.merged: list[Any] = []


def load(data: bytes) -> list[Document]:
    """Return all documents; raise SourceError if ``data`` is not YAML, is nested too deeply, or expands too much."""
    builder = _Builder()
    try:
        parser = _Loader(data)
        while (event := parser.get_event()) is not None:
            builder.handle_event(event)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        msg = f"not YAML: {_describe_error(error, data)}"
        raise SourceError(msg) from error
    return builder.documents


class _Builder:
    """Builds values from events, without recursion."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self._open: list[_OpenCollection] = []
        self._anchors: dict[str, _Node] = {}
        self._root: Any = None
        self._warnings: list[str] = []
        self._aliased = 0

    def handle_event(self, event: Any) -> None:  # noqa: ANN401 - PyYAML's events have no types
        """Handle the parser's next event."""
        kind = type(event)
        if kind is events.ScalarEvent:
            self._handle_scalar(event)
        elif kind is events.MappingStartEvent:
            self._start(event, {})
        elif kind is events.SequenceStartEvent:
            self._start(event, [])
        elif kind in (events.MappingEndEvent, events.SequenceEndEvent):
            self._end(event)
        elif kind is events.AliasEvent:
            self._handle_alias(event)
        elif kind is events.DocumentStartEvent:
            self._anchors, self._root, self._warnings = {}, None, []
        elif kind is events.DocumentEndEvent:
            self.documents.append(Document(self._root, tuple(self._warnings)))

    def _handle_scalar(self, event: Any) -> None:  # noqa: ANN401
        text, plain = event.value, event.implicit[0]
        if event.tag is not None:
            plain = _is_plain(event)
        node = _Node(_scalar(text) if plain else text, 1, text, merge=plain and text == "<<")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._add(node, event)

    def _handle_alias(self, event: Any) -> None:  # noqa: ANN401
        node = self._anchors.get(event.anchor)
        if node is None:
            raise _error_at(event, f"undefined alias *{format_name(event.anchor)}")
        self._aliased += node.size
        if self._aliased > MAX_ALIASED:
            raise _error_at(event, f"aliases expand to more than {MAX_ALIASED} values")
        self._add(node, event)

    def _start(self, event: Any, value: dict[str, Any] | list[Any]) -> None:  # noqa: ANN401
        if event.tag not in (None, "!") and event.tag not in _TAGS:
            raise _error_at(event, f"unknown tag {format_value(event.tag)}")
        if len(self._open) == MAX_DEPTH:
            raise _error_at(event, f"values are nested more than {MAX_DEPTH} deep")
        self._open.append(_OpenCollection(value, event.anchor))

    def _end(self, event: Any) -> None:  # noqa: ANN401
        collection = self._open.pop()
        if isinstance(collection.value, dict):
            for merged in collection.merged:
                for key, value in merged.items():
                    collection.value.setdefault(key, value)
        node = _Node(collection.value, collection.size, None)
        if collection.anchor is not None:
            self._anchors[collection.anchor] = node
        self._add(node, event)

    def _add(self, node: _Node, event: Any) -> None:  # noqa: ANN401
        if not self._open:
            self._root = node.value
            return
        collection = self._open[-1]
        collection.size += node.size
        if isinstance(collection.value, list):
            collection.value.append(node.value)
        elif collection.key is None:
            if node.text is None:
                raise _error_at(
                    event,
                    "expected a key, found a mapping or a list; an unfilled template placeholder such as {{ name }} "
                    "looks like this",
                )
            collection.key = node
        else:
            self._add_pair(collection, collection.key, node, event)
            collection.key = None

    def _add_pair(self, collection: _OpenCollection, key: _Node, node: _Node, event: Any) -> None:  # noqa: ANN401
        if key.merge:
            mappings = node.value if isinstance(node.value, list) else [node.value]
            if not all(isinstance(item, dict) for item in mappings):
                raise _error_at(event, "<< requires a mapping or a list of mappings")
            collection.merged += mappings
            return
        name: Any = key.text
        if name in collection.value and len(self._warnings) < MAX_WARNINGS:
            line = event.start_mark.line + 1
            self._warnings.append(f"line {line}: duplicate key {format_value(name)}; using the last value")
        collection.value[name] = node.value


def _is_plain(event: Any) -> bool:  # noqa: ANN401
    if event.tag in _TEXT_TAGS:
        return False
    if event.tag in _PLAIN_TAGS:
        return True
    raise _error_at(event, f"unknown tag {format_value(event.tag)}")


def is_text(scalar: str) -> bool:
    """Tell whether a scalar without quotes is text."""
    return isinstance(_scalar(scalar), str)


def _scalar(text: str) -> Any:  # noqa: ANN401 - YAML has every type
    """Return the value of a plain scalar."""
    if text[:1] in _NUMBER_STARTS and len(text) <= _LONGEST_NUMBER:
        return _number(text)
    return _KEYWORDS.get(text, text)


def _number(text: str) -> Any:  # noqa: ANN401
    digits = text.replace("_", "") if text[:1] not in "._" else text
    if match := _INTEGER.fullmatch(digits):
        sign, binary, hexadecimal, octal, decimal = match.groups()
        base = 2 if binary else 16 if hexadecimal else 8 if octal else 10
        value = int((binary or "")[2:] or hexadecimal or octal or decimal, base)
        return _written(WrittenInt(-value if sign == "-" else value), text)
    if _FLOAT.fullmatch(digits):
        special = digits.lower().lstrip("+-").startswith((".i", ".n"))
        return _written(WrittenFloat(digits.replace(".", "", 1) if special else digits), text)
    return text


def _written(number: WrittenInt | WrittenFloat, text: str) -> int | float:
    """Return a number that remembers its spelling, if that differs from Python's."""
    if text == str(number):
        return int(number) if isinstance(number, int) else float(number)
    number.text = text
    return number


def _error_at(event: Any, problem: str) -> yaml.MarkedYAMLError:  # noqa: ANN401
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _describe_error(error: Exception, data: bytes) -> str:
    """Return the position and the problem, in one line; in the library's words if these are clear."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"byte {error.position + 1}: {error.reason}; expected UTF-8 text"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    if "nesting depth" in str(error.problem):  # PyYAML 6.0.4: before the event at which MAX_DEPTH is checked
        return f"line {mark.line + 1}, column {mark.column + 1}: values are nested more than {MAX_DEPTH} deep"
    context = f", {error.context}" if error.context and "next token" not in error.context else ""
    lines = data.splitlines()
    tab = b"\t" in lines[mark.line][: mark.column + 1] if mark.line < len(lines) else False
    if tab and "cannot start" in str(error.problem):
        return f"line {mark.line + 1}: tab used for indentation; YAML allows only spaces"
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}{context}"
