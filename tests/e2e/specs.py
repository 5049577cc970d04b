"""The network specs of ``e2e.test``: those that ``make test-e2e`` runs, and the others with the reasons."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

NAMES = Path(__file__).with_name("network_specs.txt")
"""The names of all specs of the special interest group Network in the pinned release, sorted."""
FOCUS = r"\[sig-network\]"
"""The specs that run if the command line names none, except the skipped ones."""

SUBSET = r"\[sig-network\] (Services|Conntrack|KubeProxy|HostPort|EndpointSlice|Proxy version) "
"""The specs of ``--subset``."""
LONG = "should have session affinity timeout work"
"""Specs that ``--subset`` leaves out: each of them waits over four minutes."""
DUAL_STACK = r"\[Feature:IPv6DualStack\]"
"""Specs that a cluster with one IP family leaves out."""
LOAD_BALANCERS = r"\[Feature:LoadBalancer\]"
"""Specs that need a load balancer, which ``--load-balancers`` adds."""


class Skipped(Struct, frozen=True):
    """Specs that do not run, by a regular expression of Go; ``count`` is without those of the groups before."""

    pattern: str
    count: int
    reason: str


_ONE_NODE = (
    "in MetalLB's layer 2 mode, one node gets all connections of a load balancer: with the traffic policy Local, "
)

SKIPPED = (
    Skipped(r"\[Feature:NetworkPolicy\]", 48, "neither knft nor the cluster's CNI plugins enforce NetworkPolicies"),
    Skipped(
        "[sS][cC][tT][pP]",
        8,
        "the kernel may lack SCTP, as Debian's cloud kernels do: then pods cannot open SCTP sockets",
    ),
    Skipped(
        "should handle load balancer cleanup finalizer",
        1,
        "expects a finalizer of Kubernetes' own Service controller for clouds; MetalLB sets none",
    ),
    Skipped("should target all nodes with endpoints", 1, f"{_ONE_NODE}only the endpoints on it"),
    Skipped(
        "should be able to switch session affinity for LoadBalancer service with Local traffic policy",
        1,
        f"{_ONE_NODE}no two endpoints answer",
    ),
    Skipped(
        "should work for type=LoadBalancer",
        1,
        "expects a client outside of the nodes' network /16 (IPv4) or /64 (IPv6); here it is in this network",
    ),
    Skipped(LOAD_BALANCERS, 13, "needs load balancers: `--load-balancers` runs these specs with MetalLB"),
    Skipped(r"\[Provider:GCE\]", 1, "needs Google's cloud"),
    Skipped(r"\[Feature:Networking-IPv4\]", 1, "needs a route to the internet"),
    Skipped(r"\[Feature:Networking-IPv6\]", 1, "needs a route to the internet"),
    Skipped(r"\[Feature:Networking-DNS\]", 1, "needs a route to the internet"),
    Skipped(
        "should forward PTR records lookup to upstream nameserver",
        1,
        "asks for the name of 8.8.8.8 on the internet first",
    ),
    Skipped(r"\[Feature:Networking-Performance\]", 1, "measures the throughput of the network, not the Service proxy"),
    Skipped(r"\[Feature:PerformanceDNS\]", 1, "measures DNS with 10 000 Services; CoreDNS answers, no Service proxy"),
    Skipped(r"\[Feature:KubeProxyNFAcct\]", 1, "reads counters of kube-proxy's mode iptables"),
    Skipped(
        r"\[Feature:KubeProxyDaemonSetMigration\]",
        2,
        "moves kube-proxy between static pods and a DaemonSet with the scripts for Google's cloud",
    ),
    Skipped(
        "should work after restarting apiserver", 1, "deletes the API server's pod; here the API server is a process"
    ),
    Skipped(
        "should recreate its iptables rules if they are deleted",
        1,
        "deletes kube-proxy's iptables rules on nodes with SSH",
    ),
)


def network_specs(listed: str) -> list[str]:
    """Return the names of the network specs in the output of ``e2e.test --list-tests``."""
    return sorted(line.split(": ", 1)[1] for line in listed.splitlines() if FOCUS.replace("\\", "") in line)


def skipped_counts(names: Iterable[str]) -> Counter[str]:
    """Return the numbers of skipped specs by pattern; those that run count for an empty one."""
    return Counter(next((each.pattern for each in SKIPPED if re.search(each.pattern, name)), "") for name in names)
