"""Selection of the objects that this proxy handles (docs/behaviour/tracking.md#selection)."""

from knft.model.objects import EndpointSlice, KubeObject, Node, Service


def is_selected(found: KubeObject, node_name: str) -> bool:
    """Tell whether to handle an object: no Services of other proxies, no headless slices, only this node's Node."""
    labels = found.metadata.proxy_labels
    match found:
        case Service():
            return labels.proxy_name is None and found.spec.cluster_ip != "None"
        case EndpointSlice():
            return labels.headless is None
        case Node():
            return found.metadata.name == node_name
        case _:
            return True
