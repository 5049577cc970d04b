"""Decoding: from bytes to objects. Parses YAML documents or JSON, splits Lists, and validates each object.

Invalid objects are skipped and reported. SourceError is raised only if the bytes are neither YAML nor JSON.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from knft.errors import SourceError
from knft.model.objects import EndpointSlice, KubeObject, Node, Service, ServiceCIDR
from knft.model.unknown import ANYTHING, NOTHING_UNKNOWN, UnknownObjects
from knft.source.decode_errors import describe_decode_error
from knft.source.formatting import describe_type, format_name, format_value, join_alternatives, object_name
from knft.source.unknown_objects import unknown_objects
from knft.source.validate import FieldProblem, fatal_problems, without_invalid_parts
from knft.source.yaml_documents import Document, load

KINDS: dict[tuple[str, str], type[KubeObject]] = {
    ("v1", "Service"): Service,
    ("v1", "Node"): Node,
    ("discovery.k8s.io/v1", "EndpointSlice"): EndpointSlice,
    ("networking.k8s.io/v1", "ServiceCIDR"): ServiceCIDR,
    ("networking.k8s.io/v1beta1", "ServiceCIDR"): ServiceCIDR,
}
"""The supported kinds, by apiVersion and kind."""

MAX_PROBLEMS_PER_OBJECT = 10
"""How many problems of one object are reported."""
_SCHEMA_DEPTH = 10
"""More than the depth of any supported field."""

_LISTS: dict[tuple[str, str], tuple[str, str]] = {(version, f"{kind}List"): (version, kind) for version, kind in KINDS}
_EXPLICIT_LISTS = [["v1", "List"], ["v1", "ServiceList"]]
"""If such a List is empty, its author says that there are no Services."""
_KINDS_BY_LOWER_CASE = {kind.casefold(): kind for _, kind in KINDS}
_TYPES_BY_LOWER_CASE = {kind.casefold(): object_type for (_, kind), object_type in KINDS.items()}
_MISSING = "is missing"
"""A truncated file may be the cause of problems that contain these words."""


class DecodedManifest(Struct, frozen=True):
    """The content of one file.

    ``locations`` describes where in the file each object is. ``problems`` are messages about objects that were skipped,
    or used without an invalid part. ``skipped`` counts objects of unsupported kinds, ``invalid`` objects that were
    skipped because of a problem, and ``unknown`` tells which these may be. ``has_empty_list`` means that the file
    contains a List without items, by which its author says that there are no objects. ``may_be_truncated`` means that
    the content does not show that it is complete: it is YAML without a newline at its end.
    """

    objects: tuple[KubeObject, ...]
    problems: tuple[str, ...] = ()
    skipped: tuple[tuple[str, int], ...] = ()
    locations: tuple[str, ...] = ()
    invalid: int = 0
    has_empty_list: bool = False
    may_be_truncated: bool = False
    unknown: UnknownObjects = NOTHING_UNKNOWN


class _Item(NamedTuple):
    """A document, or an item of a List, and a description of its location in the file."""

    location: str
    value: Any


class _Decoder:
    """Collects decoded objects and problems."""

    def __init__(self, kinds: Mapping[tuple[str, str], type[KubeObject]]) -> None:
        self._kinds = kinds
        self.objects: list[KubeObject] = []
        self.locations: list[str] = []
        self.problems: list[str] = []
        self.skipped: Counter[str] = Counter()
        self.invalid = 0
        self.unknown: set[UnknownObjects] = set()
        self._has_missing_field = False
        """Whether the last document is invalid because a field is missing."""

    def decode_document(self, location: str, document: Any) -> None:  # noqa: ANN401 - manifests are trees of anything
        """Decode one document, or one item of a List."""
        decoded_before, unsupported_before = len(self.objects), self.skipped.total()
        problems_before = len(self.problems)
        self._decode(location, document)
        is_invalid = len(self.objects) == decoded_before and self.skipped.total() == unsupported_before
        if is_invalid:
            self.invalid += 1
            self.unknown.add(unknown_objects(document, _TYPES_BY_LOWER_CASE))
        self._has_missing_field = is_invalid and any(_MISSING in each for each in self.problems[problems_before:])

    def unknown_objects(self, *, may_continue: bool) -> UnknownObjects:
        """Return which objects the invalid documents may describe.

        If the file ``may_continue`` and its last document lacks a field, the file may be truncated, and further
        documents may be missing.
        """
        return ANYTHING if may_continue and self._has_missing_field else UnknownObjects.merged(self.unknown)

    def _decode(self, location: str, document: Any) -> None:  # noqa: ANN401
        if not isinstance(document, dict):
            self.problems.append(f"{location}: expected a Kubernetes object, found {describe_type(document)}; skipped")
            return
        kind = self._kind(location, document)
        if kind is None:
            return
        kube_object, messages = decode_object(location, document, kind)
        self.problems += messages
        if kube_object is not None:
            self.objects.append(kube_object)
            self.locations.append(location)

    def _kind(self, location: str, document: dict[str, Any]) -> type[KubeObject] | None:
        """Return the type of a document; if it is not supported, report or count it and return None."""
        version, kind = document.get("apiVersion"), document.get("kind")
        for field, value in (("kind", kind), ("apiVersion", version)):
            if not isinstance(value, str) or not value:
                problem = "is missing" if value in (None, "") else f"is {describe_type(value)}, not text"
                self.problems.append(f"{location}: {field} {problem}; skipped")
                return None
        object_type = self._kinds.get((str(version), str(kind)))
        if object_type is None:
            self._report_unsupported_kind(location, str(version), str(kind))
        return object_type

    def _report_unsupported_kind(self, location: str, version: str, kind: str) -> None:
        if kind == "List" and version == "v1":
            self.problems.append(f"{location}: a List inside a List is not supported; skipped")
            return
        supported_kind = _KINDS_BY_LOWER_CASE.get(kind.casefold())
        versions = tuple(dict.fromkeys(item for item, name in KINDS if name == supported_kind))
        if supported_kind is None or _group(version) not in map(_group, versions):
            group_suffix = f" of {format_name(version)}" if supported_kind is not None else ""
            self.skipped[f"{format_name(kind)}{group_suffix}"] += 1
        elif kind != supported_kind:
            self.problems.append(f"{location}: unknown kind {format_value(kind)}; use {supported_kind}; skipped")
        else:
            problem = (
                f"{kind} of apiVersion {format_value(version)} is not supported; use {join_alternatives(versions)}"
            )
            self.problems.append(f"{location}: {problem}; skipped")


def decode_object(
    location: str, document: dict[str, Any], kind: type[KubeObject]
) -> tuple[KubeObject | None, list[str]]:
    """Return the object of a document, or None if it is invalid, and messages about its problems."""
    name = object_name(location, kind.__name__, document)
    result = _convert(document, kind)
    problems = [result] if isinstance(result, tuple) else fatal_problems(result)
    if problems or isinstance(result, tuple):
        return None, format_problems(name, problems, "; skipped")
    kube_object, ignored_parts = without_invalid_parts(result)
    return kube_object, format_problems(name, ignored_parts, "")


def format_problems(name: str, problems: list[FieldProblem], suffix: str) -> list[str]:
    """Return a message for each problem of an object, up to ``MAX_PROBLEMS_PER_OBJECT``."""
    messages = [
        f"{name}: {field + ': ' if field else ''}{problem}{suffix}"
        for field, problem in problems[:MAX_PROBLEMS_PER_OBJECT]
    ]
    if len(problems) > MAX_PROBLEMS_PER_OBJECT:
        messages.append(f"{name}: {len(problems) - MAX_PROBLEMS_PER_OBJECT} more problems")
    return messages


def decode(data: bytes, kinds: Mapping[tuple[str, str], type[KubeObject]] = KINDS) -> DecodedManifest:
    """Decode all objects of ``kinds`` in ``data``; raise SourceError if it is neither YAML nor JSON."""
    collected = _Decoder(kinds)
    documents = _parse(data)
    for number, document in enumerate(documents, start=1):
        location = f"document {number}"
        collected.problems += [f"{location}: {warning}" for warning in document.warnings]
        for item in _items(location, document.value):
            collected.decode_document(item.location, item.value)
    return DecodedManifest(
        tuple(collected.objects),
        tuple(collected.problems),
        tuple(sorted(collected.skipped.items())),
        tuple(collected.locations),
        collected.invalid,
        any(_is_empty_list(document.value) for document in documents),
        _may_be_truncated(data),
        collected.unknown_objects(may_continue=not _is_bracketed(data)),
    )


def _may_be_truncated(data: bytes) -> bool:
    """Tell whether the content may end inside a line."""
    end = data[-2:].replace(b"\0", b"")  # UTF-16 has zero bytes.
    return not _is_bracketed(data) and not end.endswith((b"\n", b"\r"))


def _is_bracketed(data: bytes) -> bool:
    """Tell whether the content begins with a bracket: JSON or flow style, which cannot be parsed if it is truncated.

    Other YAML may be truncated after any line.
    """
    beginning = data[:64].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    return beginning.startswith((b"{", b"["))


def _is_empty_list(document: Any) -> bool:  # noqa: ANN401 - manifests are trees of anything
    if not isinstance(document, dict) or document.get("items") != []:
        return False
    return [document.get("apiVersion"), document.get("kind")] in _EXPLICIT_LISTS


def _parse(data: bytes) -> list[Document]:
    if not data.strip():
        msg = "the file is empty"
        raise SourceError(msg)
    bare = data.removeprefix(b"\xef\xbb\xbf")
    if bare.lstrip()[:1] not in (b"{", b"["):
        return load(data)
    try:
        return [Document(msgspec.json.decode(bare), ())]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # A file that was cut off is not parsed as YAML, which is slow. msgspec calls half a surrogate pair truncated,
        # too, but then the file ends with a bracket.
        if "truncated" in str(error) and bare.rstrip()[-1:] not in (b"}", b"]"):
            msg = "not JSON: it ends inside a value"
            raise SourceError(msg) from error
        return _flow_style(data, error)
    except RecursionError as error:
        msg = "not JSON: values are nested too deeply"
        raise SourceError(msg) from error


def _flow_style(data: bytes, json_error: Exception) -> list[Document]:
    """Parse YAML that starts like JSON; raise SourceError with both problems."""
    try:
        return load(data)
    except SourceError as error:
        msg = f"not JSON ({json_error}), and {error}"
        raise SourceError(msg) from error


def _items(location: str, document: Any) -> Iterator[_Item]:  # noqa: ANN401 - manifests are trees of anything
    """Yield a document, or the items of a List."""
    if document is None:
        return
    if not isinstance(document, dict) or not _is_list(document):
        yield _Item(location, document)
        return
    items = document.get("items")
    if not isinstance(items, list | None):
        # A single value instead of a list is decoded like an item, which reports its problem.
        items = [items]
    member = _LISTS.get((document.get("apiVersion", ""), document["kind"]))
    for index, item in enumerate(items or ()):
        if member is not None and isinstance(item, dict):
            # The API server omits these two fields in the items of a typed list.
            yield _Item(f"{location}, items[{index}]", {"apiVersion": member[0], "kind": member[1], **item})
        else:
            yield _Item(f"{location}, items[{index}]", item)


def _is_list(document: dict[str, Any]) -> bool:
    kind, version = document.get("kind"), document.get("apiVersion", "")
    if not isinstance(kind, str) or not isinstance(version, str):
        return False
    return kind == "List" or (version, kind) in _LISTS or (kind.endswith("List") and "items" in document)


def _convert(document: dict[str, Any], kind: type[KubeObject]) -> KubeObject | FieldProblem:
    """Return the object, or the problem that makes it invalid."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError:
        pass
    # In the API, null means that the field is omitted. It is rare, so nulls are removed only after a failed conversion.
    document = _without_nulls(document, _SCHEMA_DEPTH)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        return describe_decode_error(document, kind, str(error))


def _without_nulls(value: Any, depth: int) -> Any:  # noqa: ANN401 - manifests are trees of anything
    if depth and isinstance(value, dict):
        return {key: _without_nulls(item, depth - 1) for key, item in value.items() if item is not None}
    if depth and isinstance(value, list):
        return [_without_nulls(item, depth - 1) for item in value]
    return value


def _group(version: str) -> str:
    return version.rpartition("/")[0]
