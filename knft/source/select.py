"""Selection of the objects that this proxy handles (docs/behaviour/tracking.md#selection)."""

from knft.model.objects import EndpointSlice, KubeObject, Node, Service


def is_selected(item: KubeObject, node_name: str) -> bool:
    """Tell whether to handle an object.

    Not handled are Services of other proxies, headless Services and their slices, and Nodes other than this one.
    """
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
