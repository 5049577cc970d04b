"""Notes on a comparison of manifests: what the operator probably did not mean."""

from collections.abc import Iterator

from knft.config import Config
from knft.decide.node_problems import cluster_cidr_problem


def change_notes(config: Config) -> Iterator[str]:
    """Yield what makes the packets of a change other than on the nodes of the cluster."""
    if problem := cluster_cidr_problem(config):
        yield f"{problem}; give the value of the cluster, clusterCIDR in kube-proxy's configuration"
