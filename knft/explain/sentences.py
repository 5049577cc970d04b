"""All sentences of an explanation, except the outcomes and reasons that ``knft.interpret`` writes.

``tests/packets/test_explanations.py`` sends packets for each of them, or names the test that does.
"""

import enum

from msgspec import Struct


class Sentence(enum.Enum):
    """A sentence; its value is a template. The name in lower case is the ``kind`` in the JSON output."""

    # What WHAT is.
    FRONTEND = "{what} is {kind} of Service port {port}"
    ADDRESS = "{what} is {kind} of {services}"
    ENDPOINT = "{what} is an endpoint of {ports}"
    USED_FOR_SOME = "used for {used}, not for {unused}"
    USED_BY_SOME = "used by {used}, not by {unused}"
    USED_BY = "used by {ports}"
    UNUSED_BY = "not used by {ports}"
    USED_IN_PART_BY = "used for some traffic by {ports}"
    FRONTEND_OF_FAMILY = "{what} is {kind} of Service port {port} for {family}"

    # A Service port and its endpoints.
    SERVED = "{used} of {total} {family} endpoints of {port} get connections"
    ALL_SERVED = "all {count} Service ports of {services} have endpoints that get connections"
    SOME_UNSERVED = "{count} of {total} Service ports of {services} have a problem"
    NO_SLICES = "no {family} EndpointSlice belongs to Service {service}, so {family} connections to {port} are rejected"
    PORT_NOT_IN_SLICES = (
        "no {family} EndpointSlice of Service {service} has port {wanted}, only {found}, so {family} connections to "
        "{port} are rejected"
    )
    SLICES_WITHOUT_PORTS = (
        "the {family} EndpointSlices of Service {service} have no ports, so {family} connections to {port} are rejected"
    )
    NO_ENDPOINTS = (
        "the {family} EndpointSlices of Service {service} have no endpoint, so {family} connections to {port} are "
        "rejected"
    )
    NONE_READY = "no {family} endpoint of {port} is ready or still serves, so {family} connections to it are rejected"
    INTERNAL_NONE_LOCAL = (
        "no usable {family} endpoint of {port} is on this node and internalTrafficPolicy is Local, so {family} "
        "connections to its cluster IP are dropped"
    )
    EXTERNAL_NONE_LOCAL = (
        "no usable {family} endpoint of {port} is on this node and externalTrafficPolicy is Local, so {family} "
        "connections from outside are dropped"
    )
    SOURCE_RANGES = "only clients in {ranges} can connect to {frontends}, because of loadBalancerSourceRanges"
    MASQUERADED = "endpoints see the node's address instead of the client's in connections {hosts} to {frontends}"
    LOST_FRONTENDS = "{port} does not get {frontends}, which {owner} owns"
    KERNEL_SERVED = "{port} sends {family} connections to {count} endpoints"
    KERNEL_UNSERVED = "{port} has no {family} endpoint that gets connections"

    # The client of --client.
    PINNED = (
        "client {client} is pinned to {endpoint} at {frontends} for {time}, or longer if it opens another connection"
    )
    NOT_PINNED = "client {client} has no affinity entry on this node that its connections to {port} use"
    NO_AFFINITY = "{port} has no session affinity, so client {client} is not pinned to an endpoint"
    NO_FRONTEND_OF_FAMILY = "{what} has no {family} frontend, so client {client} is not pinned to an endpoint"

    # Services without rules.
    HEADLESS = "Service {service} is headless, so knft has no rules for it: clients connect to pods themselves"
    EXTERNAL_NAME = "Service {service} is of type ExternalName, so knft has no rules for it"
    NO_CLUSTER_IP = "Service {service} has no cluster IP, so knft has no rules for it"
    NO_PORTS = "Service {service} has no ports, so knft has no rules for it"
    OTHER_PROXY = (
        "Service {service} has label service.kubernetes.io/service-proxy-name={proxy}, so knft has no rules for it"
    )
    TOO_MANY_FRONTENDS = "knft does not serve Service {service}: {error}"
    TOO_MANY_ENDPOINTS = (
        "knft has no {family} endpoints for Service {service}, so {family} connections to it are rejected: {error}"
    )

    PROXY_MODE = (
        "{address} is a load balancer IP of Service {service} with ipMode Proxy, so knft does not translate packets to "
        "it"
    )
    OF_UNSERVED = "{address} is an address of Service {service}"
    NODE_PORT_OF_UNSERVED = "{port} is a NodePort of Service {service}"
    UNSERVED_NODE_PORT = "the node's processes get the packets"
    HEALTH_CHECK_PORT = "{port} is the health check port of Service {service}, so knft run answers the requests"
    ENDPOINT_OF_UNSERVED = "{what} is in an EndpointSlice of Service {service}"
    NO_CLUSTER_IP_IN_FAMILY = "Service {service} has no {family} cluster IP, so knft has no {family} rules for it"
    NO_PORT_OF_SLICE = "Service {service} has no port of this name and protocol, so knft sends it no connections"
    UNSERVED_DROPPED = "{cidr} is a Service CIDR, so packets to {address} are dropped"
    UNSERVED_KEPT = "{address} is in no Service CIDR, so knft does not translate packets to it"

    # What does not exist.
    NO_SERVICE = "there is no Service {service}"
    UNKNOWN_SERVICE = (
        "the running knft has no Service {service}: it does not exist, is headless, or has label "
        "service.kubernetes.io/service-proxy-name"
    )
    KERNEL_NO_SERVICE = "the kernel's rules have no frontend of Service {service}"
    NO_SUCH_PORT = "Service {service} has no port {port}, only {found}"
    KERNEL_NO_SUCH_PORT = "knft's rules have no frontend of port {port} of Service {service}, only of {found}"
    DID_YOU_MEAN = "did you mean {names}?"
    UNALLOCATED = "no Service has {address}; {cidr} is a Service CIDR, so packets to it are dropped"
    KERNEL_UNALLOCATED = (
        "knft's rules have no frontend at {address}; {cidr} is a Service CIDR, so packets to it are dropped"
    )
    CLUSTER_IP_OTHER_PORT = (
        "{address} is a cluster IP of {services}, which has no port {port}, only {found}, so connections are rejected"
    )
    CLUSTER_IP_OTHER_PROTOCOL = (
        "{address} is a cluster IP of {services}, which has port {number} for {found} only, so connections with "
        "{protocol} are rejected"
    )
    EXTERNAL_OTHER_PORT = (
        "{address} is an external address of {services}, which has no port {port}, only {found}: knft does not "
        "translate these packets"
    )
    NODE_ADDRESS = "{address} is an address of this node; no Service has {what}, so its processes get the packets"
    KERNEL_NODE_ADDRESS = (
        "{address} is an address of this node; knft's rules have no {what}, so its processes get the packets"
    )
    NODE_PORT_ELSEWHERE = (
        "{owner} has NodePort {port}, which {address} does not accept, so the node's processes get the packets"
    )
    NODE_PORT_ON_LOOPBACK = "{what} is the NodePort of {port}, which a process of knft serves at this address"
    NODE_PORT_REJECTED_ON_LOOPBACK = (
        "{what} is the NodePort of {port}, which is not served at loopback addresses: packets are rejected"
    )
    NODE_PORT_OF_NODE = "NodePort {port} is that of {owner}, but {address} is not an address of this node"
    NO_NODE_PORT = "no Service has NodePort {port}, so the node's processes get the packets"
    KERNEL_NO_NODE_PORT = "knft's rules have no NodePort {port}, so the node's processes get the packets"
    NODE_PORT_OTHER_PROTOCOL = (
        "{services} has NodePort {number} for {found} only, so the node's processes get the packets with {protocol}"
    )
    NO_NODE_PORT_ADDRESS = (
        "{port} has a NodePort, but no {family} address of this node accepts NodePorts; the Node object or --node-ip "
        "names the node's address"
    )
    NOT_A_FRONTEND = "no Service has {what}, and it is in no Service CIDR: knft does not translate packets to it"
    KERNEL_NOT_A_FRONTEND = (
        "knft's rules have no frontend {what}, and it is in no Service CIDR: knft does not translate packets to it"
    )

    # Frontends that several Services claim.
    LOST_BY_KIND = "belongs to {owner}, which claims it as {kind}"
    LOST_BY_AGE = "belongs to {owner}, which is older"
    LOST_BY_NAME = "belongs to {owner}, whose name sorts first"
    ALSO_CLAIMED = "also claimed by {names}"

    # Endpoints.
    USED = "used"
    USED_TERMINATING = "used although it terminates: no endpoint that may be used is ready"
    NO_FRONTEND = "not used: these frontends belong to {owners}"
    NOT_READY = "not used: not ready"
    NOT_SERVING = "not used: terminates and no longer serves"
    TERMINATES = "not used: terminates, and other endpoints are ready"
    OTHER_NODE = "not used: on another node, and {policy} is Local"
    OTHER_ZONE = "not used: its hints are for zone {zones}, and this node is in {zone}"
    HINTED_NODE = "not used: its hints are for node {nodes}"
    HAIRPIN = "an endpoint that connects to its own Service and gets itself sees the node's address as the source"
    PODS_OF_THIS_NODE = (
        "externalTrafficPolicy Local keeps the addresses of pods, so only pods of this node get replies from endpoints "
        "on other nodes"
    )
    RESETS_CONNECTIONS = (
        "some seconds after an endpoint is deleted, knft ends TCP connections to it, and clients that send something "
        "get a reset (knft.dev/drain: reset)"
    )
    SERVED_ON_LOOPBACK = (
        "a process of knft serves the NodePort at {at}, too: each connection of a process of this node reaches one of "
        "{used} endpoints, with this node's address as the source"
    )
    INVALID_DROPPED = (
        "this node drops the packets that it forwards and conntrack finds INVALID, of all connections "
        "(--drop-invalid-packets)"
    )

    # The kernel beside the objects.
    KERNEL_EQUAL = "the kernel's rules treat these packets in the same way"
    KERNEL_DIFFERENT = "the kernel's rules treat packets to {frontend} differently"
    KERNEL_EXTRA = "the kernel also has frontend {frontend} of {port}"
    KERNEL_HAS_NONE = "the kernel's rules have no frontend for {what} either"
    KERNEL_NO_TABLE = "the kernel has no {family} table of knft"
    KERNEL_UNREAD = "the kernel's rules were not compared: {error}"

    # The syncs of the running knft.
    NEVER_SYNCED = "no {family} sync has succeeded since knft started"
    SYNC_PENDING = "changes of {family} Services or endpoints wait for a sync"
    SYNC_FAILED = "the last {family} sync failed, and knft retries it: {error}"
    TABLE_CHANGED = "another program changed the {family} table, and knft has not checked it yet"
    TABLE_LEFT = "knft leaves the {family} table to an older version of knft that runs"
    QUARANTINED = "Service port {port} is quarantined, and knft retries it: {error}"

    @property
    def kind(self) -> str:
        """The ``kind`` of its statements."""
        return self.name.lower()


class Statement(Struct, frozen=True):
    """A sentence with its values. ``kind`` identifies the sentence; the text may change with the version of knft."""

    kind: str
    text: str


def state(sentence: Sentence, **values: object) -> Statement:
    """Return a sentence with its values."""
    return Statement(sentence.kind, sentence.value.format(**values))
