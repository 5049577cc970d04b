"""Selection of the objects that this proxy handles (docs/behaviour/tracking.md#selection)."""

from knft.model.objects import EndpointSlice, KubeObject, Node, Service


def is_selected(item: KubeObject, node_name: str) -> bool:
    """Tell whether to handle an object: no Services of other proxies, no headless Services or their slices, only this node's Node."""
    labels = item.metadata.proxy_labels
    match item:
        case Service():
            return labels.proxy_name is None and item.spec.cluster_ip != "None"
        case EndpointSlice():
            return labels.headless is None
        case Node():
            return item.metadata.name == node_name
        case _:
            return True
