"""The clauses that packets have to show, and those that no packet can show.

Letters and numbers are sections of behaviour.md, numbers in brackets their items; K's rows have short names.
"""

from typing import NamedTuple

RULES = {
    "A.3": "a port's own number, protocol and target",
    "A.5": "endpoints by slice and port name; several slices are one Service",
    "A.6": "Services that are this proxy's",
    "B.2": "Cluster: ready endpoints that hints allow, or else terminating ones, whatever the hints",
    "B.4": "Local: ready local endpoints, or else terminating ones",
    "B.5": "internal Local and external Local reach the same local endpoints",
    "B.7": "reachable are both, where hints or terminating make them differ",
    "C.4(6)": "hairpin connections by protocol",
    "C.4(7)": "only marked traffic is masqueraded",
    "C.4(8)": "an endpoint that reaches itself sees the node",
    "C.4(9)": "live cluster IPs are known",
    "C.4(10)": "undefined ports of cluster IPs are refused",
    "C.4(11)": "unallocated cluster IPs are dropped",
    "C.4(12)": "NodePort addresses are chosen among local ones",
    "C.4(13)": "frontends without endpoints are known",
    "C.4(14)": "NodePorts without endpoints are known",
    "C.4(15)": "a refusal is an ICMP message",
    "C.4(16)": "frontends without endpoints are refused on their way in, out and through",
    "C.4(17)": "NodePorts without endpoints are refused on NodePort addresses alone",
    "C.4(20)": "frontends with source ranges are known",
    "C.4(21)": "they are guarded before translation",
    "C.4(22)": "frontends and NodePorts lead to endpoints",
    "C.4(23)": "masquerading to cluster IPs",
    "C.4(24)": "frontends with an address",
    "C.4(25)": "NodePorts on local addresses",
    "C.5": "elements come and go between syncs",
    "C.6(1)": "hairpin of every reachable local endpoint",
    "C.6(2)": "pools exist where the policies use them",
    "C.6(3)": "the internal policy chooses the pool",
    "C.6(4)": "a chain for outside traffic where there is any",
    "C.6(5)": "reject without any endpoint, drop without a local one",
    "C.6(6)": "cluster IPs of this proxy's Services",
    "C.6(7)": "cluster IP: endpoints or verdict",
    "C.6(8)": "external IP: endpoints, verdict, or both",
    "C.6(9)": "source ranges guard VIPs, whatever the endpoints",
    "C.6(10)": "every VIP",
    "C.6(11)": "NodePorts",
    "C.6(13)": "external traffic: masquerade, or the short-circuits of policy Local",
    "C.6(14)": "which sources a VIP is open to",
    "C.6(16)": "one endpoint of several, each with its port",
    "C.6(17)": "session affinity",
    "C.8": "localhost NodePorts are refused",
    "C.11": "no NodePort on loopback, only primary addresses by default",
    "I.5": "the primary address",
    "I.6": "detection of local traffic",
    "issue 3 host network": "endpoints whose address is a node's",
    "issue 3 two claimants": "who gets a frontend, and who gets it afterwards",
    "issue 3 duplicates": "one Service that says the same twice",
}

TOPOLOGY = (
    "hints, both policies Local",
    "internal Local ignores hints",
    "no node labels",
    "empty zone label",
    "node in a zone without hints",
    "hinted but not ready in own zone",
    "only unready ones in own zone",
    "one ready endpoint lacks a hint",
    "several zones per endpoint",
    "conflicting topology and locality",
    "internal Local, no endpoints",
    "internal Local, all remote",
    "internal Local, all local",
    "internal Local, some local",
    "Cluster, none ready",
    "Cluster, some ready",
    "Cluster, all terminating",
    "internal Local, external Cluster",
    "internal Cluster, external Local",
    "both Local, one local",
    "both Local, all remote",
    "both Local, remote terminating",
    "external Local, terminating local",
    "external Local, not accessible",
    "internal Local, inside only",
    "PreferSameNode",
    "unready endpoint without hints",
)
"""K.1, row by row."""

DETECTIONS = (
    "ClusterCIDR",
    "NodeCIDR",
    "BridgeInterface",
    "InterfaceNamePrefix",
    "no detection",
    "masqueradeAll",
)
"""The columns of the masquerade matrix."""
SOURCES = ("local-2", "node", "outside")
DESTINATIONS = tuple(
    f"${frontend}"
    for frontend in (
        "cluster.40:80", "node:30040", "external.40:80", "external.41:80",
        "cluster.42:80", "node:30042", "external.42:80", "external.43:80",
    )
)  # fmt: skip
"""Cluster IP, NodePort, VIP and external IP: of a Service with external policy Cluster, and of one with Local."""

PROXIER = (
    *(f"masquerade {detection}" for detection in DETECTIONS),
    "LB hairpin",
    "no-endpoint reject",
    "external IP reject",
    "LB reject",
    "node port reject",
    "source ranges allowed",
    "source ranges denied",
    "VIP as source",
    *(
        f"nodePortAddresses {form}"
        for form in (
            "primary", "CIDR", "all", "zero CIDR", "none matching", "one family", "loopback CIDR", "primary and CIDR",
        )
    ),
    "only-local external IP",
    "only-local load balancer",
    "only-local NodePort",
    "internal traffic policy",
    "terminating endpoints, Cluster",
    "terminating endpoints, Local",
    "hairpin",
    "session affinity",
    "repeated sync",
    "ipMode Proxy",
    "bad addresses",
)  # fmt: skip
"""K.6, case by case."""

CLUSTER = (
    "port change",
    "multiport",
    "SCTP",
    "hairpin",
    "source kept to a cluster IP",
    "up and down",
    "type changes",
    "publishNotReadyAddresses",
    "session affinity",
    "rejected without endpoints",
    "dropped where both policies are Local",
    "internal policy Local",
    "external policy Local falls back",
    "service-proxy-name label",
    "headless",
    "ExternalName",
    "survives a restart",
    "LB source ranges",
    "ipMode Proxy",
    "pod to service",
    "node to service",
    "endpoint to service",
    "udp",
    "update nodePort",
    "trafficDistribution",
    "dual stack",
    "source kept by policy Local",
    "pod to pod without NAT",
)
"""K.10, case by case."""

SHOWN = frozenset(
    [
        *RULES,
        *(f"K.1 {row}" for row in TOPOLOGY),
        *(f"K.6 {case}" for case in PROXIER),
        *(f"K.10 {case}" for case in CLUSTER),
    ]
)


class Elsewhere(NamedTuple):
    """Why no scenario shows a clause, and the test that does instead, as pytest calls it; "" where there is none."""

    reason: str
    test: str


NO_PACKET = {
    "C.6(12)": Elsewhere(
        "what is not written again cannot be seen",
        "tests/kernel/test_operations.py::test_a_sync_without_changes_sends_nothing",
    ),
    "C.6(15)": Elsewhere(
        "a timeout needs time to pass",
        "tests/packets/test_affinity.py::test_a_timeout_that_changes_counts_from_the_next_connection",
    ),
    "C.7": Elsewhere(
        "stale chains carry no packet",
        "tests/kernel/test_sticky_chains.py::test_chains_are_emptied_at_once_and_deleted_a_second_later",
    ),
    "C.4(1)": Elsewhere("the table's own form", "tests/kernel/test_rule_forms.py::test_every_rule_loads_and_is_listed"),
    "C.4(2)": Elsewhere(
        "chains of an older version", "tests/kernel/test_rule_forms.py::test_a_table_with_another_layout_is_replaced"
    ),
    "C.4(26)": Elsewhere(
        "what an earlier process left is read",
        "tests/kernel/test_operations.py::test_what_is_missing_or_too_much_is_mended_at_start",
    ),
    "K.6 startup": Elsewhere(
        "what an earlier process left is not made twice",
        "tests/kernel/test_operations.py::test_a_restart_on_an_unchanged_cluster_sends_nothing",
    ),
    "K.6 NodePorts on addresses that come and go": Elsewhere(
        "it needs a process that follows",
        "tests/packets/test_addresses.py::test_node_ports_follow_the_addresses_of_the_machine",
    ),
    "K.6 overall rules": Elsewhere(
        "a dump of rules", "tests/kernel/test_rule_forms.py::test_every_rule_loads_and_is_listed"
    ),
    "K.6 partial sync and failed transaction": Elsewhere(
        "nothing changes for packets",
        "tests/kernel/test_recovery.py::test_a_change_that_is_refused_is_made_by_comparing_at_once",
    ),
    "K.6 localhost NodePort reject set": Elsewhere("the gate is off by default, and knft has none (C.8)", ""),
    "K.6 naming": Elsewhere("knft names no chain after a Service", ""),
    "K.6 health check node port, no-endpoints metric": Elsewhere("knft serves no health checks and metrics yet", ""),
    "K.1 PreferSameNode with the gate off": Elsewhere("the gate is on by default, and knft has none", ""),
    "K.10 nodePort conflicts": Elsewhere("the API server refuses them; two claimants are shown", ""),
    "K.10 healthCheckNodePort during termination": Elsewhere("knft serves no health checks yet", ""),
    "K.10 rules survive a flush": Elsewhere(
        "the table is watched, not a packet",
        "tests/packets/test_foreign.py::test_what_others_change_is_mended_and_reported",
    ),
    "K.10 conntrack, the server pod is replaced": Elsewhere(
        "a client dials from one port before and after",
        "tests/packets/test_udp_flows.py::test_clients_keep_working_when_their_server_is_replaced",
    ),
    "K.10 conntrack, an endpoint becomes ready": Elsewhere(
        "the same",
        "tests/packets/test_udp_flows.py::test_clients_are_served_once_an_endpoint_is_ready",
    ),
    "K.10 conntrack, the target port changes": Elsewhere(
        "the same",
        "tests/packets/test_udp_flows.py::test_clients_keep_working_when_the_target_port_changes",
    ),
    "K.10 conntrack, INVALID packets": Elsewhere("knft has no rule for them, as kube-proxy has none in this mode", ""),
    "K.10 kube_proxy, CLOSE_WAIT": Elsewhere(
        "a setting is no packet", "tests/kernel/test_sysctls.py::test_the_namespaces_own_settings_are_set"
    ),
    "K.10 kube_proxy, nfacct": Elsewhere("nfacct is not of this mode", ""),
    "K.10 readiness urls": Elsewhere("knft serves none yet", ""),
    "K.10 apiserver restart": Elsewhere("knft reads manifests", ""),
    "K.10 hostport, endpointslice mirroring": Elsewhere("they are others' work", ""),
}
