"""Finds out which object an invalid document describes, so that knft keeps only the rules of that object."""

from typing import Any

import msgspec

from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, KubeObject, Node, ObjectMeta, Service, ServiceCIDR
from knft.model.unknown import ANYTHING, UnknownObjects


def unknown_objects(document: Any, kinds: dict[str, type[KubeObject]]) -> UnknownObjects:  # noqa: ANN401 - manifests are trees of anything
    """Return which objects an invalid document may describe: any, unless its kind and its name can be read.

    ``kinds`` are the supported kinds in lower case. An EndpointSlice that does not tell its Service may belong to every
    Service of its namespace.
    """
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        return ANYTHING
    kind = kinds.get(document["kind"].casefold())
    metadata = _metadata(document.get("metadata"))
    if metadata is None:
        return ANYTHING
    if kind is Service:
        return UnknownObjects(services=frozenset({NamespacedName(metadata.namespace, metadata.name)}))
    if kind is EndpointSlice:
        service = metadata.proxy_labels.service_name
        if not service:
            return UnknownObjects(namespaces=frozenset({metadata.namespace}))
        return UnknownObjects(services=frozenset({NamespacedName(metadata.namespace, service)}))
    return UnknownObjects(node=True) if kind in (Node, ServiceCIDR) else ANYTHING


def _metadata(value: Any) -> ObjectMeta | None:  # noqa: ANN401
    """Return the metadata; None if they are invalid, since then the name may be, too."""
    if not isinstance(value, dict):
        return None
    try:
        return msgspec.convert({name: item for name, item in value.items() if item is not None}, ObjectMeta)
    except msgspec.ValidationError:
        return None
