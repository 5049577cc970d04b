"""The node, the API server with its Services, and connections through the node's rules; all proxies share it."""

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.cluster.applier import Applier
from tests.cluster.bench.connections import Connections
from tests.cluster.bench.endpoints import ENDPOINT_NETWORKS, EndpointNumbers, spread
from tests.cluster.bench.sizes import Size
from tests.cluster.bench.stored_objects import copies, stored_keys
from tests.cluster.churn.numbered_endpoints import PORT, TARGET_PORT, address, cluster_ip, endpoint_slice, service
from tests.cluster.cluster import Cluster
from tests.support.lab.links import flush_conntrack, netlink
from tests.support.lab.plan import NODE, REMOTE
from tests.support.lab.topology import Lab
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

_WRITERS = 8
# How long a connection is waited for: while rules are missing, and when all must be there.
_REFUSED_SECONDS, _ANSWER_SECONDS = 0.005, 30.0


class Testbed:
    """A node with one local pod as client; the other node has the addresses of all endpoints."""

    def __init__(self, lab: Lab, cluster: Cluster, connections: Connections, folder: Path, endpoints: int) -> None:
        """Use an API server that has the Nodes and the service CIDR, and no Service of this benchmark."""
        self.node = lab.host(NODE.host).namespace
        self.remote = lab.host(REMOTE.host).namespace
        self.outside = lab.host("outside").namespace
        self.pod = lab.pods(NODE.host)[0].namespace
        """The local pod."""
        self.cluster = cluster
        self.connections = connections
        self.folder = folder
        self.endpoints = EndpointNumbers(endpoints)

    def fill(self, size: Size) -> None:
        """Create Services with their slices up to a size: the first through the API server, all others in etcd."""
        api, store = self.cluster.api, self.cluster.etcd_store
        new = list(self.endpoints.grow(size))
        if 0 in new:
            api.create(service(0))
            api.create(self._slice(0))
            new.remove(0)
        templates = {kind: store.get(key) for kind, key in stored_keys(0).items()}
        store.put_all(copies(templates, new, {index: self.endpoints.numbers(index) for index in new}, _now()))
        wait_until(lambda: self._is_filled(size), "the API server does not list all objects", interval=0.5)

    def write(self, indexes: Sequence[int]) -> None:
        """Update the slices of Services through the API server, several at the same time."""
        replace = self.cluster.api.replace
        slices = [self._slice(index) for index in indexes]
        if len(slices) == 1:
            replace(slices[0])
            return
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(replace, slices))

    def answering(self, index: int, seconds: float = _REFUSED_SECONDS) -> int | None:
        """Return the number of the endpoint that accepts a connection to a Service, None if none does in time."""
        return self.connections.endpoint(cluster_ip(index), PORT, seconds)

    def wrong_service(self) -> int | None:
        """Connect to each Service; return the first that no endpoint of its own answers."""
        for index in range(self.endpoints.services):
            if self.answering(index, _ANSWER_SECONDS) not in self.endpoints.numbers(index):
                return index
        return None

    def dial_services(self, count: int) -> tuple[list[float], list[float]]:
        """Return the seconds of connections to Services spread over the cluster, and of as many to their endpoints."""
        indexes = spread(self.endpoints.services, 100)
        through = [(cluster_ip(index), PORT) for index in indexes]
        direct = [(address(self.endpoints.numbers(index)[0]), TARGET_PORT) for index in indexes]
        found: tuple[list[float], list[float]] = ([], [])
        # Alternately, so that other load of the machine affects both.
        for _ in range(max(1, count // len(indexes))):
            found[0].extend(self.connections.dial(through))
            found[1].extend(self.connections.dial(direct))
        return found

    def delete_conntrack_entries(self) -> None:
        """Delete the node's conntrack entries; those of connections tried before the rules were in force do harm.

        Such an entry has no translation and lasts for two minutes. A later connection from the same port to the same
        Service would belong to it, would not be translated either, and fail.
        """
        flush_conntrack(self.node)

    def remove_rules(self) -> None:
        """Delete all rules and conntrack entries of the node; no proxy may be running."""
        self.node.run(["nft", "flush", "ruleset"])
        for tool, tables in (("iptables-legacy", "ip_tables_names"), ("ip6tables-legacy", "ip6_tables_names")):
            for table in self._legacy_tables(tables):
                self.node.run([tool, "-w", "-t", table, "-F"])
                self.node.run([tool, "-w", "-t", table, "-X"])
        flush_conntrack(self.node)

    def _legacy_tables(self, file: str) -> list[str]:
        """Return the tables of legacy iptables that the node has."""
        with self.node.entered(), suppress(FileNotFoundError):
            return Path("/proc/thread-self/net", file).read_text().split()
        return []

    def _is_filled(self, size: Size) -> bool:
        """Tell whether the API server lists as many objects as a cluster of this size has; one is its own Service."""
        counts = [len(self.cluster.api.list(kind)) for kind in ("Service", "EndpointSlice")]
        return counts == [size.services + 1, size.services]

    def _slice(self, index: int) -> dict[str, Any]:
        return endpoint_slice(index, self.endpoints.numbers(index), _now())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@contextmanager
def testbed(endpoints: int) -> Iterator[Testbed]:
    """Start the API server and build the node; each Service will have this number of endpoints."""
    with tempfile.TemporaryDirectory(prefix="knft-bench-") as name, Lab(local_pods=1, remote_pods=0) as lab:
        node, remote = lab.host(NODE.host).namespace, lab.host(REMOTE.host).namespace
        (client,) = lab.pods(NODE.host)
        with netlink(node) as link:
            link.add_routes(ENDPOINT_NETWORKS, gateway=REMOTE.lan)
        with netlink(remote) as link:
            link.up("lo")
            link.add_local_networks(ENDPOINT_NETWORKS)
        folder = Path(name)
        with Cluster(node, folder) as cluster, Connections(client.namespace, remote) as connections:
            Applier(cluster).apply(Scenario("", [], ()).manifests())
            yield Testbed(lab, cluster, connections, folder, endpoints)
