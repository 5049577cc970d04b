"""Requests the pods and zones of a Service's endpoints, which knft does not keep (docs/design/memory.md)."""

from knft.apiserver.api_client import ApiClient
from knft.apiserver.decoder import ObjectDecoder
from knft.control.objects import PodPage
from knft.model import addresses, described
from knft.model.endpoint_pod import EndpointPod, EndpointState
from knft.model.names import NamespacedName
from knft.model.objects import EndpointConditions

PAGE_SLICES = 20
"""How many EndpointSlices are requested at once; one has up to 1000 endpoints, and the controller writes up to 100."""
# Built once: see api_client. The thread that imports this module first is the only one that builds decoders then.
_DECODER = ObjectDecoder(described.EndpointSlice)


def list_pods(client: ApiClient, service: NamespacedName, token: str) -> PodPage:
    """Return a page of the pods of a Service's endpoints; ``token`` is that of the page before, "" for the first one.

    ``service`` must have the form of a Service's name. Raises ApiServerError if the server does not list them.
    """
    body = client.request(
        "GET",
        f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices",
        [
            ("labelSelector", f"kubernetes.io/service-name={service.name}"),
            ("limit", str(PAGE_SLICES)),
            *([("continue", token)] if token else []),
        ],
    )
    return decode_pods(body)


def decode_pods(body: bytes) -> PodPage:
    """Return the pods of a page of EndpointSlices; raise ApiServerError if it is not one."""
    page = _DECODER.decode_page(body)
    slices = [event.object for event in page.items if isinstance(event.object, described.EndpointSlice)]
    return PodPage(
        tuple(_pod(endpoint) for item in slices for endpoint in item.endpoints or () if endpoint.addresses),
        page.continue_token,
    )


def _pod(endpoint: described.DescribedEndpoint) -> EndpointPod:
    return EndpointPod(
        addresses.canonical_text(endpoint.addresses[0]),
        endpoint.node_name or "",
        endpoint.pod,
        endpoint.zone_name,
        _state(endpoint.conditions or EndpointConditions()),
    )


def _state(conditions: EndpointConditions) -> EndpointState:
    if conditions.ready is not False:
        return "ready"
    if conditions.terminating is not True:
        return "not ready"
    return "serving" if conditions.serving is not False else "terminating"
