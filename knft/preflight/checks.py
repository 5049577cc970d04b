"""All checks in the order of the output."""

from collections.abc import Iterator

from knft.preflight.chains import check_base_chains
from knft.preflight.comparison import check_comparison
from knft.preflight.configuration import check_configuration
from knft.preflight.connections import check_connections
from knft.preflight.conntrack import check_conntrack
from knft.preflight.contested import check_contested
from knft.preflight.facts import Facts
from knft.preflight.host import check_kernel, check_library, check_nft
from knft.preflight.kube_proxy import check_kube_proxy
from knft.preflight.marks import check_mark
from knft.preflight.node import check_node
from knft.preflight.report import Finding, Preflight, conclude, make_point


def check(facts: Facts) -> Preflight:
    """Return whether the node is ready for knft."""
    host, rules, config = facts.host, facts.rules, facts.config
    points = (
        make_point("kernel", check_kernel(host)),
        make_point("libnftables", check_library(host)),
        make_point("nft of the host", check_nft(host)),
        make_point("base chains", check_base_chains(rules, config)),
        make_point("kube-proxy", check_kube_proxy(rules)),
        make_point("configuration", check_configuration(facts.configuration)),
        make_point("conntrack", check_conntrack(facts.conntrack)),
        make_point("packet mark", check_mark(rules, config.masquerade_bit)),
        make_point("node", check_node(facts.cluster, config.node_name)),
        make_point("comparison", _check_rules(facts)),
        make_point("connections", check_connections(facts.cluster)),
    )
    return conclude(config.node_name, points)


def _check_rules(facts: Facts) -> Iterator[Finding]:
    # With kube-proxy's file, knft has the cluster CIDR that kube-proxy has, or none as kube-proxy.
    lacks_cluster_cidr = facts.configuration is None and facts.config.lacks_cluster_cidr
    yield from check_comparison(facts.comparison, facts.diff_command, lacks_cluster_cidr=lacks_cluster_cidr)
    yield from check_contested(facts.cluster)
