"""The specs that ``make test-e2e`` runs, and those that it leaves out, with the reasons."""

from collections.abc import Mapping

_GROUPS = (
    *("API Server", "Services", "Networking", "KubeProxy", "Conntrack", "HostPort", "NoSNAT", "DNS"),
    *("EndpointSlice", "EndpointSliceMirroring", "Endpoints", "EndpointsController"),
    *("Proxy version", "Service CIDRs", "ServiceCIDR and IPAddress API", "Service endpoints latency"),
    *("Connectivity Pod Lifecycle", "Topology Hints", "Traffic Distribution"),
)
"""The beginnings of the names of the network specs that concern Services and pods' connectivity."""
FOCUS = rf"\[sig-network\] ({'|'.join(_GROUPS)}|\[Feature:IPv6DualStack\])"
"""The specs that run if the command line names none."""

SUBSET = r"\[sig-network\] (Services|Conntrack|KubeProxy|HostPort|EndpointSlice|Proxy version) "
"""The specs of ``--subset``."""
LONG = "should have session affinity timeout work"
"""Specs that ``--subset`` leaves out: each of them waits over four minutes."""
DUAL_STACK = r"\[Feature:IPv6DualStack\]"
"""Specs that a cluster with one IP family leaves out."""

SKIPPED: Mapping[str, str] = {
    r"[sS][cC][tT][pP]": "the kernel may lack SCTP, as Debian's cloud kernels do: then pods cannot open SCTP sockets",
    r"\[Provider:GCE\]": "needs Google's cloud",
    r"\[Feature:LoadBalancer\]": "needs a cloud provider that assigns addresses to load balancers",
    r"\[Feature:Networking-IPv4\]": "needs a route to the internet",
    r"\[Feature:Networking-IPv6\]": "needs a route to the internet",
    r"\[Feature:Networking-DNS\]": "needs a route to the internet",
    "should forward PTR records lookup to upstream nameserver": "asks for the name of 8.8.8.8 on the internet first",
    r"\[Feature:Networking-Performance\]": "measures the throughput of the network, not the Service proxy",
    r"\[Feature:KubeProxyNFAcct\]": "reads counters of kube-proxy's mode iptables",
    "should work after restarting apiserver": "deletes the API server's pod; here the API server is a process",
    "should recreate its iptables rules if they are deleted": "deletes kube-proxy's iptables rules on nodes with SSH",
}
