"""The clauses of docs/behaviour that packets of scenarios have to show, and those that no packet can show.

A clause is an anchor of a page in docs/behaviour: ``nftables.md#hairpin``. Its text here says what it requires.
"""

from typing import NamedTuple

REQUIREMENTS = {
    "tracking.md#service-ports": "a Service port has its own port number, protocol and target port",
    "tracking.md#endpoint-slices": "endpoints are found by port name, and all EndpointSlices of a Service count",
    "tracking.md#selection": "Services of another proxy (label service-proxy-name) are ignored",
    "endpoints.md#cluster": "policy Cluster uses ready endpoints that hints allow; without any ready endpoint, "
    "serving terminating ones whatever their hints",
    "endpoints.md#local": "policy Local uses ready local endpoints; without any, serving terminating local ones",
    "endpoints.md#both-policies-local": "internal and external policy Local reach the same local endpoints",
    "endpoints.md#reachable": "endpoints of both policies are reachable, also where hints make the two sets differ",
    "endpoints.md#host-network": "an endpoint may have the address of a node",
    "draining.md#no-endpoint": "clients of a Service with knft.dev/drain that has no endpoint are refused as others",
    "invalid-packets.md#rule": "packets that conntrack knows are forwarded although INVALID ones are dropped",
    "load-balancing.md#annotation": "the hash of a client's address determines its endpoint, at all frontends",
    "load-balancing.md#policies": "policy Local hashes to the endpoints on this node",
    "nftables.md#hairpin-connections": "hairpin connections are matched by protocol and port",
    "nftables.md#masquerade-mark": "only marked packets are masqueraded",
    "nftables.md#hairpin": "an endpoint that connects to itself sees the node as the client",
    "nftables.md#cluster-ips": "cluster IPs in use are known",
    "nftables.md#undefined-ports": "ports that a Service does not define are rejected at its cluster IP",
    "nftables.md#unallocated-cluster-ips": "packets to cluster IPs that no Service has are dropped",
    "nftables.md#nodeport-ips": "NodePorts are served on those local addresses that --nodeport-addresses selects",
    "nftables.md#no-endpoint-services": "frontends without endpoints are known",
    "nftables.md#no-endpoint-nodeports": "NodePorts without endpoints are known",
    "nftables.md#reject": "a rejected client receives an ICMP message",
    "nftables.md#service-endpoints-check": "frontends without endpoints are rejected in three hooks",
    "nftables.md#nodeport-endpoints-check": "NodePorts without endpoints are rejected on NodePort addresses only",
    "nftables.md#firewall-ips": "frontends with source ranges are known",
    "nftables.md#firewall-check": "source ranges are checked before destination NAT",
    "nftables.md#services-chain": "frontends and NodePorts are translated to endpoints",
    "nftables.md#masquerade-to-cluster-ips": "packets to cluster IPs from outside the cluster are masqueraded",
    "nftables.md#service-ips": "a frontend is an address, a protocol and a port",
    "nftables.md#service-nodeports": "NodePorts are matched on local addresses",
    "nftables.md#elements": "map and set elements are added and removed between syncs",
    "nftables.md#local-endpoint-hairpin": "every reachable local endpoint has a hairpin element",
    "nftables.md#used-pools": "a pool of endpoints exists only if a policy uses it",
    "nftables.md#internal-policy": "the internal traffic policy chooses the pool of the cluster IP",
    "nftables.md#external-chain": "a Service port with external frontends has rules for external traffic",
    "nftables.md#no-endpoints": "a Service port without endpoints is rejected; without local ones, policy Local drops",
    "nftables.md#cluster-ip-set": "only Services of this proxy have their cluster IP in the set",
    "nftables.md#cluster-ip": "the cluster IP leads to endpoints or to a verdict",
    "nftables.md#external-ip": "an external IP leads to endpoints, a verdict, or either by client",
    "nftables.md#source-ranges": "source ranges apply to load balancer IPs whether or not there are endpoints",
    "nftables.md#load-balancer-ip": "every load balancer IP is a frontend",
    "nftables.md#nodeport": "a NodePort leads to endpoints or to a verdict",
    "nftables.md#external-traffic": "external traffic is masqueraded, unless the policy is Local",
    "nftables.md#allowed-sources": "which sources may reach a load balancer IP",
    "nftables.md#endpoint-choice": "one of several endpoints is chosen, each with its own target port",
    "nftables.md#session-affinity": "with session affinity, a client keeps its endpoint",
    "nftables.md#loopback-nodeports": "NodePorts on loopback addresses are not served",
    "nftables.md#differences": "by default NodePorts are served on the primary addresses only, never on loopback",
    "configuration.md#node-addresses": "how the primary address of each family is found",
    "configuration.md#local-traffic": "how each --detect-local-mode detects pod traffic",
    "ownership.md#order": "which Service owns a frontend that several claim, and which owns it after a change",
    "ownership.md#duplicates": "one Service may state the same frontend twice",
}
"""What each rule requires, by clause."""

SERVICE_PORT_CLAUSES = (
    "local-endpoint-hairpin", "used-pools", "internal-policy", "external-chain", "no-endpoints", "cluster-ip-set",
    "cluster-ip", "external-ip", "source-ranges", "load-balancer-ip", "nodeport", "unchanged-service-ports",
    "external-traffic", "allowed-sources", "affinity-timeout", "endpoint-choice", "session-affinity",
)  # fmt: skip
"""Rows of nftables.md#service-ports."""

TOPOLOGY = {
    "hints-both-policies-local": "policy Local ignores hints; clients that bypass it follow them",
    "internal-local-ignores-hints": "internal policy Local ignores hints",
    "no-node-labels": "without labels on the Node, hints are ignored",
    "empty-zone-label": "with an empty zone label, hints are ignored",
    "node-in-a-zone-without-hints": "hints are ignored if no endpoint is hinted for the node's zone",
    "hinted-but-not-ready-in-own-zone": "endpoints that are hinted for the zone but not ready are not used",
    "only-unready-ones-in-own-zone": "hints are ignored if all endpoints of the zone are not ready",
    "one-ready-endpoint-lacks-a-hint": "hints are ignored if a ready endpoint has none",
    "several-zones-per-endpoint": "an endpoint may be hinted for several zones",
    "conflicting-topology-and-locality": "hints may choose endpoints other than the local ones",
    "internal-local-no-endpoints": "internal policy Local without any endpoint rejects",
    "internal-local-all-remote": "internal policy Local with remote endpoints only drops",
    "internal-local-all-local": "internal policy Local with local endpoints only uses all of them",
    "internal-local-some-local": "internal policy Local uses the local ones of all endpoints",
    "cluster-none-ready": "policy Cluster with endpoints that are neither ready nor serving rejects",
    "cluster-some-ready": "policy Cluster uses ready endpoints only",
    "cluster-all-terminating": "policy Cluster uses serving terminating endpoints if there are no others",
    "internal-local-external-cluster": "internal policy Local does not restrict external traffic",
    "internal-cluster-external-local": "external policy Local does not restrict internal traffic",
    "both-local-one-local": "with both policies Local, only the local endpoint is used",
    "both-local-all-remote": "with both policies Local and no local endpoint, packets are dropped",
    "both-local-remote-terminating": "with both policies Local, remote terminating endpoints are not used",
    "external-local-terminating-local": "external policy Local prefers terminating local to ready remote endpoints",
    "external-local-not-accessible": "external policy Local has no effect on a Service without external frontends",
    "internal-local-inside-only": "internal policy Local restricts a Service that has a cluster IP only",
    "prefersamenode": "hints for nodes come before hints for zones",
    "unready-endpoint-without-hints": "an endpoint that is not ready needs no hint",
}
"""Rows of upstream-tests.md#topology."""

DETECTIONS = {
    "ClusterCIDR": "clustercidr",
    "NodeCIDR": "nodecidr",
    "BridgeInterface": "bridgeinterface",
    "InterfaceNamePrefix": "interfacenameprefix",
    "no detection": "no-detection",
    "masqueradeAll": "masqueradeall",
}
"""Columns of the masquerade matrix, and the end of each one's clause."""
CLIENTS = ("local-2", "node", "outside")
FRONTENDS = tuple(
    f"${frontend}"
    for frontend in (
        "cluster.40:80", "node:30040", "external.40:80", "external.41:80",
        "cluster.42:80", "node:30042", "external.42:80", "external.43:80",
    )
)  # fmt: skip
"""Cluster IP, NodePort, load balancer IP, external IP: with external policy Cluster, and again with Local."""


def masquerade_clause(detection: str) -> str:
    """Return the clause of a column of the masquerade matrix."""
    return f"upstream-tests.md#nftables-masquerade-{DETECTIONS[detection]}"


NFTABLES = {
    **{
        f"masquerade-{end}": f"who is masqueraded at each kind of frontend, with {detection}"
        for detection, end in DETECTIONS.items()
    },
    "lb-hairpin": "pods and the node reach a Service through its load balancer IP",
    "no-endpoint-reject": "a cluster IP without endpoints is rejected",
    "external-ip-reject": "an external IP without endpoints is rejected",
    "lb-reject": "a load balancer IP without endpoints is rejected",
    "node-port-reject": "a NodePort without endpoints is rejected",
    "source-ranges-allowed": "clients in a source range are served",
    "source-ranges-denied": "packets of clients outside all source ranges are dropped",
    "vip-as-source": "the node may use the load balancer IP as its source address",
    "nodeportaddresses-primary": "--nodeport-addresses primary: only the primary addresses serve NodePorts",
    "nodeportaddresses-cidr": "--nodeport-addresses with a network: local addresses in it serve NodePorts",
    "nodeportaddresses-all": "--nodeport-addresses with networks of all addresses: both families serve NodePorts",
    "nodeportaddresses-zero-cidr": "--nodeport-addresses with a network of length zero selects no loopback address",
    "nodeportaddresses-none-matching": "--nodeport-addresses that matches no local address serves no NodePort",
    "nodeportaddresses-one-family": "--nodeport-addresses of one family leaves the other family open on every address",
    "nodeportaddresses-loopback-cidr": "--nodeport-addresses with a loopback network serves no NodePort",
    "nodeportaddresses-primary-and-cidr": "--nodeport-addresses with primary and a network: the primary address and "
    "the local addresses in the network serve NodePorts",
    "only-local-external-ip": "with external policy Local, an external IP reaches local endpoints only",
    "only-local-load-balancer": "with external policy Local, a load balancer IP reaches local endpoints only",
    "only-local-nodeport": "with external policy Local, a NodePort reaches local endpoints only",
    "internal-traffic-policy": "with internal policy Local, a cluster IP reaches local endpoints only",
    "terminating-endpoints-cluster": "policy Cluster uses serving terminating endpoints if none is ready",
    "terminating-endpoints-local": "policy Local uses serving terminating local endpoints if no local one is ready",
    "hairpin": "an endpoint reaches itself through its Service",
    "session-affinity": "session affinity holds across frontends",
    "repeated-sync": "changes of Services and endpoints between two syncs take effect",
    "ipmode-proxy": "a load balancer IP with ipMode Proxy is no frontend",
    "bad-addresses": "invalid addresses are ignored, and the rest of the Service is served",
}
"""Cases of upstream-tests.md#nftables."""

END_TO_END = {
    "port-change": "a changed port or target port of a Service takes effect",
    "multiport": "every port of a Service is served",
    "sctp": "a Service's SCTP port is served",
    "hairpin": "a pod reaches itself through its Service",
    "source-kept-to-a-cluster-ip": "a pod's address is kept when it connects to a cluster IP",
    "up-and-down": "an added Service is served, a deleted one is not",
    "type-changes": "a changed type of a Service adds and removes frontends",
    "publishnotreadyaddresses": "endpoints of a Service with publishNotReadyAddresses are used before they are ready",
    "session-affinity": "session affinity holds, and can be switched on and off",
    "rejected-without-endpoints": "connections to a Service without endpoints are rejected",
    "dropped-where-both-policies-are-local": "packets are dropped if both policies are Local and no endpoint is local",
    "internal-policy-local": "internal policy Local reaches local endpoints only",
    "external-policy-local-falls-back": "external policy Local falls back to terminating local endpoints",
    "service-proxy-name-label": "a Service with the label service-proxy-name is not served",
    "headless": "a headless Service has no frontend",
    "externalname": "an ExternalName Service has no frontend",
    "survives-a-restart": "Services are served after a restart of the proxy",
    "lb-source-ranges": "loadBalancerSourceRanges limits the clients of a load balancer IP",
    "ipmode-proxy": "a load balancer IP with ipMode Proxy is no frontend",
    "pod-to-service": "a pod connects to a Service",
    "node-to-service": "the node connects to a Service",
    "endpoint-to-service": "an endpoint connects to its own Service",
    "udp": "a Service's UDP port is served",
    "update-nodeport": "a changed NodePort takes effect",
    "trafficdistribution": "trafficDistribution takes effect through the hints that it sets",
    "dual-stack": "dual-stack Services are served in both families, single-stack Services in one",
    "source-kept-by-policy-local": "external policy Local keeps the client's address",
    "pod-to-pod-without-nat": "a connection from pod to pod is not translated",
}
"""Cases of upstream-tests.md#end-to-end."""

SHOWN = {
    **REQUIREMENTS,
    **{f"upstream-tests.md#topology-{row}": text for row, text in TOPOLOGY.items()},
    **{f"upstream-tests.md#nftables-{case}": text for case, text in NFTABLES.items()},
    **{f"upstream-tests.md#end-to-end-{case}": text for case, text in END_TO_END.items()},
}
"""Every clause that a packet has to show."""


class NoPacket(NamedTuple):
    """A clause that no scenario can show: what it requires, why, and the test that shows it instead, if any."""

    requirement: str
    reason: str
    test: str = ""


NO_PACKET = {
    "nftables.md#unchanged-service-ports": NoPacket(
        "unchanged Service ports are not written again",
        "packets do not show whether rules are written again",
        "tests/sync/test_transactions.py::test_a_sync_without_changes_sends_nothing",
    ),
    "nftables.md#pods-of-other-nodes": NoPacket(
        "pods of other nodes get no reply from endpoints on a third node",
        "a scenario has one node, and the rules of this node send the packet to the endpoint",
        "tests/packets/test_explanations.py::test_pods_of_other_nodes_get_no_reply_from_endpoints_on_other_nodes",
    ),
    "nftables.md#affinity-timeout": NoPacket(
        "the affinity timeout counts from a client's last connection",
        "a timeout needs time to pass",
        "tests/packets/test_affinity.py::test_changed_timeout_applies_from_the_next_connection",
    ),
    "nftables.md#after-a-sync": NoPacket(
        "stale chains are emptied at once and deleted with a later sync",
        "no packet enters a stale chain",
        "tests/sync/test_emptied_chains.py::test_emptied_chains_are_deleted_a_second_later",
    ),
    "nftables.md#table": NoPacket(
        "the table, its chains, maps and sets",
        "packets do not show how a table is written",
        "tests/kernel/test_rule_forms.py::test_every_rule_loads_and_is_listed",
    ),
    "nftables.md#older-layouts": NoPacket(
        "a table of another layout is replaced",
        "scenarios begin without a table",
        "tests/kernel/test_rule_forms.py::test_table_without_marker_is_replaced",
    ),
    "nftables.md#existing-table": NoPacket(
        "a table that an earlier process left is read and completed",
        "scenarios begin without a table",
        "tests/sync/test_transactions.py::test_restart_repairs_missing_and_superfluous_elements",
    ),
    "upstream-tests.md#nftables-startup": NoPacket(
        "a start on an unchanged cluster changes nothing",
        "packets do not show whether rules are written again",
        "tests/sync/test_transactions.py::test_a_restart_on_an_unchanged_cluster_sends_nothing",
    ),
    "upstream-tests.md#nftables-changing-node-addresses": NoPacket(
        "NodePorts are served on addresses that are added, until they are removed",
        "it needs a process that watches the node's addresses",
        "tests/packets/test_addresses.py::test_node_ports_follow_the_addresses_of_the_node",
    ),
    "upstream-tests.md#nftables-overall-rules": NoPacket(
        "all rules of a cluster, as text",
        "packets do not show how rules are written",
        "tests/kernel/test_rule_forms.py::test_every_rule_loads_and_is_listed",
    ),
    "upstream-tests.md#nftables-failed-transaction": NoPacket(
        "a change that the kernel refuses is tried again, in full",
        "the outcome of packets is the same",
        "tests/sync/test_recovery.py::test_refused_change_is_made_by_a_full_sync",
    ),
    "upstream-tests.md#nftables-loopback-nodeport-reject-set": NoPacket(
        "NodePorts on loopback are rejected by a set, behind a feature gate",
        "scenarios have no settings for a feature gate",
        "tests/packets/test_loopback_nodeports.py::test_udp_is_rejected_although_a_process_has_the_port",
    ),
    "upstream-tests.md#nftables-naming": NoPacket(
        "names of chains are made from names of Services", "knft names no chain after a Service"
    ),
    "upstream-tests.md#nftables-health-check-node-port": NoPacket(
        "health check NodePorts, and the metric of Services without endpoints", "scenarios do not ask HTTP servers"
    ),
    "upstream-tests.md#topology-prefersamenode-gate-off": NoPacket(
        "without the feature gate, hints for nodes are ignored", "the gate is on by default, and knft does not have it"
    ),
    "upstream-tests.md#end-to-end-nodeport-conflicts": NoPacket(
        "two Services cannot have the same NodePort",
        "the API server refuses the second; scenarios show two Services that claim one frontend",
    ),
    "upstream-tests.md#end-to-end-health-check-during-termination": NoPacket(
        "the health check NodePort fails while endpoints terminate", "scenarios do not ask HTTP servers"
    ),
    "upstream-tests.md#end-to-end-rules-survive-a-flush": NoPacket(
        "rules that another program removes are restored",
        "packets do not show who changed a table",
        "tests/packets/test_foreign_changes.py::test_foreign_change_is_repaired_and_reported",
    ),
    "upstream-tests.md#end-to-end-conntrack-pod-replaced": NoPacket(
        "UDP clients reach the pod that replaces their server",
        "the client has to use one port before and after",
        "tests/packets/test_udp_flows.py::test_clients_keep_working_when_their_server_is_replaced",
    ),
    "upstream-tests.md#end-to-end-conntrack-endpoint-ready": NoPacket(
        "UDP clients that were rejected are served once an endpoint is ready",
        "the client has to use one port before and after",
        "tests/packets/test_udp_flows.py::test_clients_are_served_once_an_endpoint_is_ready",
    ),
    "upstream-tests.md#end-to-end-conntrack-target-port": NoPacket(
        "UDP clients reach the new target port",
        "the client has to use one port before and after",
        "tests/packets/test_udp_flows.py::test_clients_keep_working_when_the_target_port_changes",
    ),
    "upstream-tests.md#end-to-end-conntrack-invalid": NoPacket(
        "packets in conntrack state INVALID do not reset connections",
        "knft has no rule for them, and neither has kube-proxy in nftables mode",
    ),
    "upstream-tests.md#end-to-end-close-wait": NoPacket(
        "the conntrack timeout of CLOSE_WAIT is set",
        "packets do not show a setting",
        "tests/kernel/test_sysctls.py::test_parameters_of_the_network_namespace_are_set",
    ),
    "upstream-tests.md#end-to-end-nfacct": NoPacket(
        "packets are counted by nfacct", "kube-proxy does not use nfacct in nftables mode"
    ),
    "upstream-tests.md#end-to-end-readiness-urls": NoPacket(
        "/healthz and /livez of the proxy", "scenarios do not ask HTTP servers"
    ),
    "upstream-tests.md#end-to-end-apiserver-restart": NoPacket(
        "Services are served during and after a restart of the API server", "scenarios are files of manifests"
    ),
    "upstream-tests.md#end-to-end-hostport": NoPacket(
        "hostPort, and EndpointSlice mirroring", "they are implemented by the container runtime and a controller"
    ),
}
