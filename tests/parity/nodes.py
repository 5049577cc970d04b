"""The three nodes: kube-proxy in mode nftables, kube-proxy in mode iptables, and knft, with equal labs."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.kube_proxy import KubeProxy, Mode
from tests.cluster.server_process import ServerProcess
from tests.cluster.service_account import ServiceAccount
from tests.parity.marker import Marker
from tests.parity.random_cluster import TARGET_PORTS, Settings
from tests.parity.relay import Relay
from tests.parity.varying_clients import add_clients
from tests.support.conntrack_entries import Entry, add_entries, listed_entries
from tests.support.families import VERSIONS
from tests.support.knft_command import KNFT
from tests.support.lab.links import flush_conntrack
from tests.support.lab.namespace import Namespace
from tests.support.lab.plan import Version
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.waiting import TIMEOUT, wait_until

API_PORT = 6443
_INTERVAL = 0.05


class ParityNode:
    """A lab, servers on its pods and nodes, and one proxy; a context manager for the first two."""

    name: str

    def __init__(self, lab: Lab | None = None) -> None:
        """Take the lab, or a new one; build nothing yet."""
        self.lab = lab or Lab(local_pods=4, remote_pods=3)
        self._open = ExitStack()
        self._proxy: ServerProcess | None = None

    def __enter__(self) -> Self:
        """Build the lab, and start its servers."""
        with ExitStack() as opened:
            opened.enter_context(self.lab)
            add_clients(self.lab)
            opened.enter_context(ResponderProcess(self.lab, TARGET_PORTS))
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self._open.close()

    @property
    def namespace(self) -> Namespace:
        """The node's network namespace."""
        return self.lab.host("node").namespace

    def listing(self, version: Version) -> str:
        """Return the proxy's rules of one family, "" if there are none yet."""
        raise NotImplementedError

    def start(self, cluster: Cluster, settings: Settings, folder: Path) -> None:
        """Start the proxy with empty tables and without conntrack entries."""
        raise NotImplementedError

    def stop(self) -> None:
        """Kill the proxy if it was started, and remove its rules."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        self.namespace.run(["nft", "flush", "ruleset"])
        flush_conntrack(self.namespace)

    @property
    def proxy(self) -> ServerProcess:
        """The proxy's process, which must have been started."""
        assert self._proxy is not None, f"{self.name} has not been started"
        return self._proxy

    def has(self, marker: Marker) -> bool:
        """Tell whether the marker is programmed in both families."""
        return all(marker.is_in(version, self.listing(version)) for version in VERSIONS)

    def add_entries(self, entries: Sequence[Entry]) -> None:
        """Create conntrack entries."""
        with self.namespace.entered():
            add_entries(entries)

    def entries(self) -> set[Entry]:
        """Return the UDP conntrack entries of both families."""
        with self.namespace.entered():
            return {entry for version in VERSIONS for entry in listed_entries(version) if entry.protocol == "UDP"}


class KubeProxyNode(ParityNode):
    """A node with kube-proxy."""

    def __init__(self, mode: Mode, lab: Lab | None = None) -> None:
        """Take the mode: nftables or iptables."""
        super().__init__(lab)
        self.mode = mode
        self.name = f"kube-proxy in mode {mode}"

    def start(self, cluster: Cluster, settings: Settings, folder: Path) -> None:
        """Start it, and wait for its first rules."""
        proxy = KubeProxy(cluster, self.namespace, folder / self.mode, self.mode, *settings.flags)
        self._proxy = proxy
        proxy.start()

    def listing(self, version: Version) -> str:
        """Return the table, or the rules of the table nat."""
        if self.mode == "nftables":
            return self._run("nft", "list", "table", "ip" if version == 4 else "ip6", "kube-proxy")
        return self._run("iptables-save" if version == 4 else "ip6tables-save", "-t", "nat")

    def _run(self, *command: str) -> str:
        return self.namespace.run(command, check=False).stdout


class KnftNode(ParityNode):
    """A node with knft."""

    name = "knft"

    def __init__(self, account: ServiceAccount, lab: Lab | None = None) -> None:
        """Take knft's account."""
        super().__init__(lab)
        self._account = account
        self.command: Sequence[str] = KNFT
        """The command that runs knft."""

    def has(self, marker: Marker) -> bool:
        """Tell whether the marker is programmed. A broken knft may ignore its hints, or have it in one family only."""
        if self.command == KNFT:
            return super().has(marker)
        return any(marker.is_in(version, self.listing(version), exactly=False) for version in VERSIONS)

    def start(self, cluster: Cluster, settings: Settings, folder: Path) -> None:
        """Start it with the shortest period between syncs."""
        knft = ClusterKnft(
            cluster, self._account, folder / "knft", *settings.flags, node=self.namespace, command=self.command
        )
        knft.set_flags(*settings.flags, "--min-sync-period=0")
        self._proxy = knft
        knft.start()

    def listing(self, version: Version) -> str:
        """Return knft's table."""
        table = "ip" if version == 4 else "ip6"
        return self.namespace.run(["nft", "list", "table", table, "knft"], check=False).stdout


class Nodes:
    """All nodes, which reach the API server at their loopback; a context manager."""

    def __init__(self, cluster: Cluster, account: ServiceAccount) -> None:
        """Build nothing yet."""
        self._cluster = cluster
        self.nftables, self.iptables = KubeProxyNode("nftables"), KubeProxyNode("iptables")
        self.knft = KnftNode(account)
        self.timeout = TIMEOUT
        """Seconds after which a proxy that has not programmed a change has failed."""
        self._open = ExitStack()

    def __iter__(self) -> Iterator[ParityNode]:
        """Iterate over the nodes."""
        yield from (self.nftables, self.iptables, self.knft)

    def __enter__(self) -> Self:
        """Build the labs, and connect the nodes to the API server."""
        with ExitStack() as opened:
            for node in self:
                opened.enter_context(node)
            opened.enter_context(Relay([node.namespace for node in self], self._cluster.namespace, API_PORT))
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self._open.close()

    def start(self, settings: Settings, folder: Path) -> None:
        """Start all proxies."""
        for node in self:
            node.start(self._cluster, settings, folder)

    def stop(self) -> None:
        """Kill all proxies, and remove their rules."""
        for node in self:
            node.stop()

    def check(self) -> None:
        """Fail if a proxy has exited."""
        for node in self:
            node.proxy.check()

    def wait_for(self, marker: Marker) -> None:
        """Wait until all nodes have programmed the marker."""
        for node in self:
            message = f"{node.name} does not program the change"
            try:
                wait_until(partial(node.has, marker), message, self.check, timeout=self.timeout, interval=_INTERVAL)
            except AssertionError as error:
                error.add_note(f"the last lines of the log of {node.name}:\n{node.proxy.tail()}")
                raise
