"""From bytes to objects: YAML documents or JSON, Lists taken apart, each object checked by itself.

No exception leaves here but SourceError, and that only where the bytes are no documents at all.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from knft.errors import SourceError
from knft.model.objects import EndpointSlice, KubeObject, Node, Service, ServiceCIDR
from knft.source.explain import explain
from knft.source.formatting import describe_type, format_name, format_value, join_alternatives, object_name
from knft.source.validate import FieldProblem, fatal_problems, without_invalid_parts
from knft.source.yaml_documents import Document, load

KINDS: dict[tuple[str, str], type[KubeObject]] = {
    ("v1", "Service"): Service,
    ("v1", "Node"): Node,
    ("discovery.k8s.io/v1", "EndpointSlice"): EndpointSlice,
    ("networking.k8s.io/v1", "ServiceCIDR"): ServiceCIDR,
    ("networking.k8s.io/v1beta1", "ServiceCIDR"): ServiceCIDR,
}
"""The kinds that are read, by apiVersion and kind."""

MAX_PROBLEMS_PER_OBJECT = 10
"""How many sentences are said about one object."""
_SCHEMA_DEPTH = 10
"""Deeper than any field that is read."""

_LISTS: dict[tuple[str, str], tuple[str, str]] = {(version, f"{kind}List"): (version, kind) for version, kind in KINDS}
_SPELLINGS = {kind.casefold(): kind for _, kind in KINDS}


class DecodedManifest(Struct, frozen=True):
    """What one file holds.

    ``places`` says where in the file each object stands. ``problems`` are sentences about objects that were left
    out, or of which a part was; ``skipped`` counts objects of kinds that knft does not read.
    """

    objects: tuple[KubeObject, ...]
    problems: tuple[str, ...] = ()
    skipped: tuple[tuple[str, int], ...] = ()
    locations: tuple[str, ...] = ()


class _Item(NamedTuple):
    """An object that may be one, and words for its place in the file."""

    where: str
    value: Any


class _Collected:
    """What has been decoded so far."""

    def __init__(self) -> None:
        self.objects: list[KubeObject] = []
        self.places: list[str] = []
        self.problems: list[str] = []
        self.skipped: Counter[str] = Counter()

    def take(self, where: str, document: Any) -> None:  # noqa: ANN401 - manifests are trees of anything
        """Decode one document, or one item of a List."""
        if not isinstance(document, dict):
            self.problems.append(f"{where}: {describe_type(document)} is not a Kubernetes object; left out")
            return
        kind = self._kind(where, document)
        if kind is None:
            return
        found, sentences = decode_object(where, document, kind)
        self.problems += sentences
        if found is not None:
            self.objects.append(found)
            self.places.append(where)

    def _kind(self, where: str, document: dict[str, Any]) -> type[KubeObject] | None:
        """Return the kind of a document that is to be read; what is not read is told or counted."""
        version, kind = document.get("apiVersion"), document.get("kind")
        for field, value in (("kind", kind), ("apiVersion", version)):
            if not isinstance(value, str) or not value:
                said = "is missing" if value in (None, "") else f"is {describe_type(value)}, not text"
                self.problems.append(f"{where}: {field} {said}; left out")
                return None
        wanted = KINDS.get((str(version), str(kind)))
        if wanted is None:
            self._pass_over(where, str(version), str(kind))
        return wanted

    def _pass_over(self, where: str, version: str, kind: str) -> None:
        if kind == "List" and version == "v1":
            self.problems.append(f"{where}: a List within a List is not read; left out")
            return
        known = _SPELLINGS.get(kind.casefold())
        versions = tuple(dict.fromkeys(item for item, name in KINDS if name == known))
        if known is None or _group(version) not in map(_group, versions):
            foreign = f" of {format_name(version)}" if known is not None else ""
            self.skipped[f"{format_name(kind)}{foreign}"] += 1
        elif kind != known:
            self.problems.append(f"{where}: kind {format_value(kind)} is not read; {known} is; left out")
        else:
            said = f"{kind} of apiVersion {format_value(version)} is not read, only of {join_alternatives(versions)}"
            self.problems.append(f"{where}: {said}; left out")


def decode_object(where: str, document: dict[str, Any], kind: type[KubeObject]) -> tuple[KubeObject | None, list[str]]:
    """Return the object that a document is, None where it has to be left out, and sentences about what is wrong."""
    name = object_name(where, kind.__name__, document)
    found = _convert(document, kind)
    wrong = [found] if isinstance(found, tuple) else fatal_problems(found)
    if wrong or isinstance(found, tuple):
        return None, format_problems(name, wrong, "; left out")
    found, passed_over = without_invalid_parts(found)
    return found, format_problems(name, passed_over, "")


def format_problems(name: str, wrong: list[FieldProblem], end: str) -> list[str]:
    """Return what is said about an object: a sentence for each fault, but not without end."""
    said = [f"{name}: {field + ': ' if field else ''}{words}{end}" for field, words in wrong[:MAX_PROBLEMS_PER_OBJECT]]
    if len(wrong) > MAX_PROBLEMS_PER_OBJECT:
        said.append(f"{name}: {len(wrong) - MAX_PROBLEMS_PER_OBJECT} more of this kind")
    return said


def decode(data: bytes) -> DecodedManifest:
    """Read every object in ``data``; raise SourceError where it is neither YAML nor JSON."""
    collected = _Collected()
    for number, document in enumerate(_parse(data), start=1):
        where = f"document {number}"
        collected.problems += [f"{where}: {remark}" for remark in document.warnings]
        for item in _items(where, document.value):
            collected.take(item.where, item.value)
    return DecodedManifest(
        tuple(collected.objects),
        tuple(collected.problems),
        tuple(sorted(collected.skipped.items())),
        tuple(collected.places),
    )


def _parse(data: bytes) -> list[Document]:
    if not data.strip():
        msg = "it is empty"
        raise SourceError(msg)
    bare = data.removeprefix(b"\xef\xbb\xbf")
    if bare.lstrip()[:1] not in (b"{", b"["):
        return load(data)
    try:
        return [Document(msgspec.json.decode(bare), ())]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # The library says so of half a surrogate pair, too. YAML would need long for a large file that was cut.
        if "truncated" in str(error) and bare.rstrip()[-1:] not in (b"}", b"]"):
            msg = "not JSON: it ends in the middle of a value"
            raise SourceError(msg) from error
        return _flow_style(data, error)
    except RecursionError as error:
        msg = "not JSON: values lie in each other too deep"
        raise SourceError(msg) from error


def _flow_style(data: bytes, json_error: Exception) -> list[Document]:
    """Read YAML that begins as JSON does."""
    try:
        return load(data)
    except SourceError as error:
        msg = f"not JSON ({json_error}), and {error}"
        raise SourceError(msg) from error


def _items(where: str, document: Any) -> Iterator[_Item]:  # noqa: ANN401 - manifests are trees of anything
    """Yield a document, or the items of a List."""
    if document is None:
        return
    if not isinstance(document, dict) or not _is_list(document):
        yield _Item(where, document)
        return
    items = document.get("items")
    if not isinstance(items, list | None):
        # An object that is not in a list, or something else that is no object either.
        items = [items]
    member = _LISTS.get((document.get("apiVersion", ""), document["kind"]))
    for index, item in enumerate(items or ()):
        if member is not None and isinstance(item, dict):
            # The API server leaves these two out of the items of a typed list.
            yield _Item(f"{where}, items[{index}]", {"apiVersion": member[0], "kind": member[1], **item})
        else:
            yield _Item(f"{where}, items[{index}]", item)


def _is_list(document: dict[str, Any]) -> bool:
    kind, version = document.get("kind"), document.get("apiVersion", "")
    if not isinstance(kind, str) or not isinstance(version, str):
        return False
    return kind == "List" or (version, kind) in _LISTS or (kind.endswith("List") and "items" in document)


def _convert(document: dict[str, Any], kind: type[KubeObject]) -> KubeObject | FieldProblem:
    """Return the object, or why it is none."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError:
        pass
    # The API takes a null for a field that is left out; that is rare enough to be looked for only now.
    document = _without_nulls(document, _SCHEMA_DEPTH)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        return explain(document, kind, str(error))


def _without_nulls(value: Any, depth: int) -> Any:  # noqa: ANN401 - manifests are trees of anything
    if depth and isinstance(value, dict):
        return {key: _without_nulls(item, depth - 1) for key, item in value.items() if item is not None}
    if depth and isinstance(value, list):
        return [_without_nulls(item, depth - 1) for item in value]
    return value


def _group(version: str) -> str:
    return version.rpartition("/")[0]
