"""Notes on a comparison of manifests: what the operator probably did not mean."""

from collections.abc import Iterable, Iterator

from knft.config import Config
from knft.decide.node_problems import cluster_cidr_problem
from knft.model.described import Service
from knft.model.objects import KubeObject


def change_notes(before: Iterable[KubeObject], after: Iterable[KubeObject], config: Config) -> Iterator[str]:
    """Yield what makes the packets of a change other than on the nodes of the cluster."""
    services = {item.key for item in before if isinstance(item, Service)}
    if deleted := len(services - {item.key for item in after if isinstance(item, Service)}):
        noun, are, count = ("Service", "is", "counts") if deleted == 1 else ("Services", "are", "count")
        yield f"{deleted} {noun} of --against {are} not in -f and {count} as deleted"
    if problem := cluster_cidr_problem(config):
        yield problem
