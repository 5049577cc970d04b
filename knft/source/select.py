"""Which objects are this proxy's business (A.6)."""

from knft.model.objects import EndpointSlice, KubeObject, Node, Service


def is_selected(found: KubeObject, node_name: str) -> bool:
    """Tell whether an object counts: Services of no other proxy, slices that are not headless, the own Node."""
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
