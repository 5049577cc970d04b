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
    for service in services:
        if len(indexes) == MAX_SERVICES:
            problem = f"they are requested for {MAX_SERVICES} Services at most"
            break
        try:
            indexes[service] = _index(read(service))
        except ControlError as error:
            problem = str(error)
            break
    ports = tuple(_with_pods(port, indexes.get(_service(port), {})) for port in found.ports)
    missing = services[len(indexes) :]
    if not missing:
        return replace(found, ports=ports)
    others = f" and {len(missing) - 1} more" if missing[1:] else ""
    warning = f"pods, and zones of other nodes, are missing for {missing[0]}{others}: {problem}"
    return replace(found, ports=ports, warnings=(*found.warnings, warning))


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
    """Return an endpoint with its pod and zone; without a pod, if several pods have its address and its state."""
    pods = set(index.get((endpoint.endpoint.rpartition(":")[0].strip("[]"), endpoint.node), ()))
    if len(pods) > 1:
        pods = {pod for pod in pods if pod.state == endpoint.state}
    return replace(
        endpoint,
        pod=_common({pod.pod for pod in pods}) or endpoint.pod,
        zone=_common({pod.zone for pod in pods}) or endpoint.zone,
    )


def _common(values: set[str]) -> str:
    return values.pop() if len(values) == 1 else ""
