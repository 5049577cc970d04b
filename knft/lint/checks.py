"""All checks, the most serious first: what each finds, what happens to traffic, and what to do.

docs/operations/lint.md has a section for each. ``tests/packets/test_lint_findings.py`` sends packets for the sentences
about traffic.
"""

import enum
from typing import Literal

from msgspec import Struct

Severity = Literal["problem", "warning"]
"""problem: some connections that the manifests promise fail; warning: they will surprise, or may fail later."""


class Texts(Struct, frozen=True):
    """The severity of a check, and templates of its sentences."""

    severity: Severity
    what: str
    traffic: str
    advice: str


_REJECTED = "{family} connections are rejected"


class Check(enum.Enum):
    """A check. The name in lower case with hyphens is its identifier."""

    INVALID_OBJECT = Texts(
        "problem",
        "{message}",
        "knft uses no skipped object, and no invalid part of another object",
        "correct the manifest",
    )
    SERVICE_WITHOUT_SLICES = Texts(
        "problem",
        "no EndpointSlice has label kubernetes.io/service-name={name}{stray}",
        _REJECTED,
        "without a selector, create an EndpointSlice with this label; with a selector, the EndpointSlice controller "
        "creates one: capture EndpointSlices too",
    )
    FAMILY_WITHOUT_SLICES = Texts(
        "problem",
        "the Service has a cluster IP for {family}, but its EndpointSlices are of type {found}",
        _REJECTED,
        "add EndpointSlices with addressType {family}, or remove {family} from ipFamilies",
    )
    PORT_NAME_WITHOUT_SLICE = Texts(
        "problem",
        "no {family} EndpointSlice of the Service has port {wanted}, only {found}",
        "{family} connections to this port are rejected",
        "{remedy}",
    )
    SLICES_WITHOUT_PORTS = Texts(
        "problem",
        "the {family} EndpointSlices of the Service have endpoints, but no port with a name and a number (an empty "
        "name is valid)",
        _REJECTED,
        "{remedy}",
    )
    SERVICE_WITHOUT_ENDPOINTS = Texts(
        "problem",
        "the {family} EndpointSlices of the Service have no endpoint",
        _REJECTED,
        "compare the selector with the labels of the pods, and look whether pods run",
    )
    NO_READY_ENDPOINT = Texts(
        "problem",
        "no {family} endpoint of the Service port is ready or still serves",
        _REJECTED,
        "look at the readiness probes of the pods",
    )
    ENDPOINT_IS_CLUSTER_IP = Texts(
        "problem",
        "{family} endpoints ({endpoints}) are cluster IPs",
        "connections that are sent to these endpoints are rejected: knft does not translate a destination twice",
        "{remedy}",
    )
    CLUSTER_IP_CONFLICT = Texts(
        "problem",
        "cluster IP {address} is {conflict} on {at}",
        "connections to {address} at the ports of the Service go to its endpoints, not to the node or pod; at other "
        "ports, forwarded connections are rejected",
        "give the Service a cluster IP that no node and no pod can have",
    )
    EXTERNAL_POLICY_LOCAL = Texts(
        "problem",
        "externalTrafficPolicy is Local, and {which} {have} no usable {family} endpoint of the Service{elsewhere}",
        "connections from outside to {frontends} are dropped if they arrive at {any}",
        "use policy Cluster, run an endpoint on each node that clients use, or let clients use only nodes with "
        "endpoints",
    )
    INTERNAL_POLICY_LOCAL = Texts(
        "problem",
        "internalTrafficPolicy is Local, and {which} {have} no usable {family} endpoint of the Service{elsewhere}",
        "connections to the cluster IP are dropped on {at}",
        "use policy Cluster, or run an endpoint on each node with clients",
    )
    CONTESTED_FRONTEND = Texts(
        "problem",
        "frontend {frontend} {reason}",
        "packets to {frontend} {result}",
        "give one of the Services another address or NodePort",
    )
    HEALTH_CHECK_PORT_IN_USE = Texts(
        "problem",
        "healthCheckNodePort {number} is also {other}",
        "{result}, so load balancers use the wrong nodes",
        "let the API server allocate the ports",
    )
    ADDRESS_OF_OTHER_FAMILY = Texts(
        "problem",
        "the Service has {addresses} as {kind}, but no {family} cluster IP",
        "knft does not translate packets to {addresses}",
        "add {family} to ipFamilies, or remove the address",
    )
    NODE_PORT_WITHOUT_ADDRESS = Texts(
        "problem",
        "{which} {have} no {family} address that accepts NodePorts",
        "knft does not translate packets to NodePort {node_port} at {at}: processes of the node get them",
        "name an {family} address in the Node's status or with --node-ip, or change --nodeport-addresses",
    )
    TOO_MANY_ENDPOINTS = Texts("problem", "knft has no {family} endpoints of the Service: {error}", _REJECTED, "split "
        "the Service")  # fmt: skip
    TOO_MANY_FRONTENDS = Texts(
        "problem", "knft does not serve the Service: {error}", "the Service has no rules", "split the Service"
    )
    SERVICE_WITHOUT_PORTS = Texts(
        "problem", "the Service has a cluster IP, but no ports", "the Service has no rules", "add ports"
    )

    BECAME_HEADLESS = Texts(
        "warning",
        "the Service had cluster IP {address} before the change, and is headless after it",
        "clients that look up its name connect to the pods, and knft does not translate the port: {ports}",
        "let clients use the ports of the pods, or keep the cluster IP",
    )

    EXTERNAL_ADDRESS_CONFLICT = Texts(
        "warning",
        "{kind} {address} is {conflict} on {at}",
        "connections to the ports of the Service at this address go to its endpoints, not to the node or pod",
        "use an address that no node and no pod has",
    )
    SOURCE_RANGES_EXCLUDE_NODES = Texts(
        "warning",
        "no loadBalancerSourceRanges contains the {family} addresses of {excluded}",
        "new connections of {excluded} to {addresses} are dropped",
        "add the ranges of nodes and pods, or let them use the cluster IP",
    )
    SOURCE_RANGES_WITHOUT_FAMILY = Texts(
        "warning",
        "loadBalancerSourceRanges has no {family} range, but the Service has a load balancer IP {addresses}",
        "every client can connect to {addresses}",
        "add an {family} range",
    )
    SOURCE_RANGES_BYPASSED = Texts(
        "warning",
        "loadBalancerSourceRanges restricts only load balancer IPs, and the Service also has {others}",
        "clients outside the ranges can connect to {others}",
        "set allocateLoadBalancerNodePorts: false and remove nodePort and externalIPs, or filter these frontends "
        "elsewhere",
    )
    LOAD_BALANCER_WITHOUT_ADDRESS = Texts(
        "warning",
        "the Service has type LoadBalancer, but its status has no load balancer address",
        "knft has no rules for a load balancer IP: clients outside the cluster reach only {others}",
        "look at the events of the Service: no controller has given it an address",
    )
    NO_CLUSTER_IP = Texts(
        "warning",
        "the Service has no cluster IP",
        "knft has no rules for the Service",
        "the API server assigns a cluster IP: capture the objects with kubectl get -o yaml",
    )
    OTHER_PROXY = Texts(
        "warning",
        "the Service has label service.kubernetes.io/service-proxy-name={proxy}",
        "knft has no rules for the Service",
        "remove the label, unless another proxy serves it",
    )
    FAMILY_WITHOUT_CLUSTER_IP = Texts(
        "warning",
        "ipFamilies has {family}, but clusterIPs has no {family} address at that position",
        "knft has no {family} rules for the Service",
        "make ipFamilies and clusterIPs agree",
    )
    IGNORED_FIELD = Texts(
        "warning", "{field} has no effect, because {reason}", "none of this field", "remove the field, or {remedy}"
    )
    HEADLESS_SLICE = Texts(
        "warning",
        "EndpointSlice {slice} has label service.kubernetes.io/headless, but the Service has a cluster IP",
        "connections do not reach the endpoints of this EndpointSlice",
        "remove the label",
    )
    SLICE_WITHOUT_SERVICE = Texts(
        "warning",
        "label kubernetes.io/service-name={name} names no Service of the namespace{similar}",
        "no Service sends connections to the endpoints of this EndpointSlice",
        "correct the label, or remove the EndpointSlice",
    )
    SLICE_WITHOUT_LABEL = Texts(
        "warning",
        "the EndpointSlice has no label kubernetes.io/service-name",
        "no Service sends connections to its endpoints",
        "add the label with the name of the Service",
    )
    ENDPOINT_WITHOUT_NODE = Texts(
        "warning",
        "the nodeName of {family} endpoints ({endpoints}) {problem}, and {policy} is Local",
        "policy Local uses these endpoints on no node of the manifests",
        "set nodeName to the node of the pod",
    )
    ENDPOINT_OUTSIDE_POD_CIDRS = Texts(
        "warning",
        "{family} endpoints ({endpoints}) are neither addresses of nodes nor in a podCIDR, unlike those of all pods",
        "connections go to these addresses, which no pod of these nodes can have",
        "correct the addresses; for endpoints outside the cluster, use a Service without a selector",
    )
    ENDPOINT_IN_SEVERAL_SLICES = Texts(
        "warning",
        "{family} endpoints ({endpoints}) are in several EndpointSlices of the Service, with different conditions, "
        "nodes or hints",
        "what the EndpointSlice says whose name sorts last counts, unless the endpoint terminates there",
        "remove the EndpointSlice that is out of date",
    )
    ONLY_TERMINATING_ENDPOINTS = Texts(
        "warning",
        "no {family} endpoint of the Service port is ready, and those that still serve terminate",
        "new connections go to terminating endpoints, and are rejected when these have ended",
        "look at the readiness probes of new pods",
    )
    HINTS_IGNORED = Texts(
        "warning",
        "{without} of {total} ready {family} endpoints of the Service port have no topology hint",
        "hints have no effect: nodes of all zones use all {total} endpoints",
        "if a controller writes the EndpointSlices, wait or look at its events; otherwise give each endpoint a hint",
    )
    NODE_WITHOUT_ZONE = Texts(
        "warning",
        "{which} {have} no label topology.kubernetes.io/zone, but endpoints of {services} have hints for zones",
        "on {at}, hints for zones have no effect: clients use endpoints of all zones",
        "label the nodes",
    )
    AFFINITY_WITH_HINTS = Texts(
        "warning",
        "sessionAffinity is ClientIP, and {reason} prefers endpoints by zone or node",
        "a client keeps its endpoint only at one node, and only while hints select this endpoint",
        "use one of both, if clients must keep their endpoint",
    )
    AFFINITY_WITH_HASHING = Texts(
        "warning",
        "sessionAffinity is ClientIP, and annotation knft.dev/load-balancing is {value}",
        "the annotation has no effect: each node chooses a random endpoint for a new client, and remembers it",
        "remove the annotation, or use sessionAffinity None",
    )
    SERVICE_CIDR_CONFLICT = Texts(
        "warning",
        "{cidr} {conflict} on {at}",
        "knft does not use this range there: packets to its addresses that no Service has are not dropped",
        "use a range without addresses of nodes and pods",
    )
    CLUSTER_IP_OUTSIDE_SERVICE_CIDRS = Texts(
        "warning",
        "cluster IP {address} is outside of the ServiceCIDRs ({cidrs})",
        "knft translates packets to {address} that the network routes to a node; another machine may have it, too",
        "use a cluster IP of a ServiceCIDR, or add a ServiceCIDR that contains it",
    )
    EXTERNAL_IPS = Texts(
        "warning",
        "spec.externalIPs is deprecated since Kubernetes 1.36",
        "knft translates packets to {addresses}, as long as the API server keeps the field",
        "use a Service of type LoadBalancer, or Gateway API",
    )
    LOAD_BALANCER_IP = Texts(
        "warning",
        "spec.loadBalancerIP is deprecated since Kubernetes 1.24",
        "none: knft reads the addresses in status.loadBalancer{status}",
        "use the annotation of the load balancer's controller",
    )
    DEPRECATED_ANNOTATION = Texts(
        "warning", "annotation {annotation} {state}", "none by itself: knft does not read this annotation",
        "use {instead}",
    )  # fmt: skip
    TOPOLOGY_KEYS = Texts(
        "warning",
        "spec.topologyKeys was removed in Kubernetes 1.22",
        "none: knft and the API server ignore the field, so clients use endpoints of all zones",
        "use spec.trafficDistribution",
    )
    PREFER_CLOSE = Texts(
        "warning",
        "trafficDistribution PreferClose is deprecated",
        "none by itself: the EndpointSlice controller turns it into hints, as it does with PreferSameZone",
        "use PreferSameZone",
    )
    MIRRORED_ENDPOINTS = Texts(
        "warning",
        "EndpointSlice {slice} mirrors an Endpoints object, and Endpoints are deprecated since Kubernetes 1.33",
        "connections reach only endpoints that the mirroring controller copies, at most 1000 for each subset",
        "create EndpointSlices instead of Endpoints",
    )

    @property
    def identifier(self) -> str:
        """The identifier of its findings, and the anchor of its documentation."""
        return self.name.lower().replace("_", "-")


ORDER = {check.identifier: number for number, check in enumerate(Check)}
"""The position of each check, the most serious first."""
