"""Adds pods and zones to an explanation from the objects of the running knft, which does not keep them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from knft.errors import ControlError
from knft.explain.explanation import ExplainedEndpoint, ExplainedPort, Explanation
from knft.model.endpoint_pod import EndpointPod
from knft.model.names import NamespacedName

MAX_SERVICES = 8
"""For how many Services pods are requested: the requests share the rate limit of knft's API client."""
_Index = Mapping[tuple[str, str], list[EndpointPod]]

ReadPods = Callable[[NamespacedName], Iterable[EndpointPod]]
"""Returns the pods of a Service's endpoints; raises ControlError if they cannot be read."""


def with_pods(found: Explanation, read: ReadPods) -> Explanation:
    """Return an explanation whose endpoints have pods and zones, or a warning if they cannot be read."""
    services = list(dict.fromkeys(_service(port) for port in found.ports if port.endpoints))
    indexes: dict[NamespacedName, _Index] = {}
    problem = ""
    try:
        for service in services[:MAX_SERVICES]:
            indexes[service] = _index(read(service))
    except ControlError as error:
        problem = f"pods, and zones of other nodes, are missing: {error}"
    else:
        if len(services) > MAX_SERVICES:
            problem = f"pods, and zones of other nodes, are missing for all but the first {MAX_SERVICES} Services"
    ports = tuple(_with_pods(port, indexes.get(_service(port), {})) for port in found.ports)
    return replace(found, ports=ports, warnings=(*found.warnings, *([problem] if problem else [])))


def _service(port: ExplainedPort) -> NamespacedName:
    namespace, _, rest = port.port.partition("/")
    return NamespacedName(namespace, rest.partition(":")[0])


def _index(pods: Iterable[EndpointPod]) -> _Index:
    index: dict[tuple[str, str], list[EndpointPod]] = defaultdict(list)
    for pod in pods:
        index[pod.address, pod.node].append(pod)
    return index


def _with_pods(port: ExplainedPort, index: _Index) -> ExplainedPort:
    return replace(port, endpoints=tuple(_with_pod(each, index) for each in port.endpoints))


def _with_pod(endpoint: ExplainedEndpoint, index: _Index) -> ExplainedEndpoint:
    """Return an endpoint with its pod and zone; without, if it is not known which pod of its address it is."""
    pods = set(index.get((endpoint.endpoint.rpartition(":")[0].strip("[]"), endpoint.node), ()))
    if len(pods) > 1:
        pods = {pod for pod in pods if pod.is_ready == (endpoint.state == "ready")}
    if len(pods) != 1:
        return endpoint
    (pod,) = pods
    return replace(endpoint, pod=pod.pod, zone=pod.zone or endpoint.zone)
