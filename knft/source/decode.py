"""From bytes to objects: YAML documents or JSON, Lists taken apart, each object checked by itself."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from knft.errors import SourceError
from knft.model.objects import EndpointSlice, KubeObject, Node, Service, ServiceCIDR
from knft.source.validate import Fault, faults, remarks

KINDS: dict[tuple[str, str], type[KubeObject]] = {
    ("v1", "Service"): Service,
    ("v1", "Node"): Node,
    ("discovery.k8s.io/v1", "EndpointSlice"): EndpointSlice,
    ("networking.k8s.io/v1", "ServiceCIDR"): ServiceCIDR,
    ("networking.k8s.io/v1beta1", "ServiceCIDR"): ServiceCIDR,
}
"""The kinds that are read, by apiVersion and kind."""

_LISTS: dict[tuple[str, str], tuple[str, str]] = {(version, f"{kind}List"): (version, kind) for version, kind in KINDS}


class Decoded(Struct, frozen=True):
    """What one file holds.

    ``problems`` are sentences about objects that were left out, or of which a part was; ``skipped`` counts objects of
    kinds that knft does not read.
    """

    objects: tuple[KubeObject, ...]
    problems: tuple[str, ...] = ()
    skipped: tuple[tuple[str, int], ...] = ()


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that leaves timestamps as they are written: the API's are text."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in _Loader.yaml_implicit_resolvers.items()
}


def decode(data: bytes) -> Decoded:
    """Read every object in ``data``; raise SourceError where it is neither YAML nor JSON."""
    objects: list[KubeObject] = []
    problems: list[str] = []
    skipped: Counter[str] = Counter()
    for where, document in _documents(data):
        if not isinstance(document, dict):
            problems.append(f"{where}: a {type(document).__name__} is not a Kubernetes object; left out")
            continue
        _decode_document(where, document, objects, problems, skipped)
    return Decoded(tuple(objects), tuple(problems), tuple(sorted(skipped.items())))


def _documents(data: bytes) -> Iterator[tuple[str, Any]]:
    """Yield every object with words for its place in the file, Lists taken apart."""
    for number, document in enumerate(_parse(data), start=1):
        where = f"document {number}"
        if not isinstance(document, dict) or not str(document.get("kind", "")).endswith("List"):
            if document is not None:
                yield where, document
            continue
        member = _LISTS.get((document.get("apiVersion"), document.get("kind")))  # type: ignore[arg-type]
        items = document.get("items") or ()
        for index, item in enumerate(items if isinstance(items, list | tuple) else [items]):
            if member is not None and isinstance(item, dict):
                # The API server leaves these two out of the items of a typed list.
                item = {"apiVersion": member[0], "kind": member[1], **item}  # noqa: PLW2901
            yield f"{where}, items[{index}]", item


def _parse(data: bytes) -> list[Any]:
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return [msgspec.json.decode(data)]
        except msgspec.DecodeError:
            pass  # Flow style YAML begins so too.
    try:
        return list(yaml.load_all(data, _Loader))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        msg = f"not YAML: {' '.join(str(error).split())}"
        raise SourceError(msg) from error


def _decode_document(
    where: str,
    document: dict[str, Any],
    objects: list[KubeObject],
    problems: list[str],
    skipped: Counter[str],
) -> None:
    kind = document.get("kind")
    if not isinstance(kind, str):
        problems.append(f"{where}: kind is missing; left out")
        return
    wanted = KINDS.get((str(document.get("apiVersion")), kind))
    if wanted is None:
        if any(kind == known for _, known in KINDS):
            version = document.get("apiVersion")
            problems.append(f"{where}: {kind} of apiVersion {version!r} is not read; left out")
        else:
            skipped[kind] += 1
        return
    name = _name(kind, document)
    try:
        found = msgspec.convert(document, wanted)
    except msgspec.ValidationError as error:
        problems.append(f"{name}: {_field(str(error))}; left out")
        return
    wrong = faults(found)
    problems += [_sentence(name, fault, "; left out") for fault in wrong]
    if not wrong:
        problems += [_sentence(name, remark, "") for remark in remarks(found)]
        objects.append(found)


def _name(kind: str, document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return kind
    parts = (metadata.get("namespace"), metadata.get("name"))
    return f"{kind} {'/'.join(str(part) for part in parts if part is not None)}"


def _field(message: str) -> str:
    """Turn msgspec's ``what - at `$.a.b` `` into ``a.b: what``."""
    what, _, path = message.partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.')}: {what}" if path else what


def _sentence(name: str, fault: Fault, end: str) -> str:
    return f"{name}: {fault[0]}: {fault[1]}{end}"
