"""Follower: ``knft run`` as a DaemonSet runs it, following the API server as its ServiceAccount."""

from pathlib import Path

from tests.cluster.account import Account, Volume, kubeconfig
from tests.cluster.cluster import Cluster
from tests.cluster.server import Server
from tests.lab import plan
from tests.packets.node import KNFT

# Limits of the whole machine are not the tests' to change.
_LEAVE_ALONE = ("--conntrack-max-per-core=0", "--conntrack-min=0")


class Follower(Server):
    """The process, on the node; its credentials are files that tests may change."""

    def __init__(self, cluster: Cluster, account: Account, folder: Path, *flags: str) -> None:
        """Write a kubeconfig with a token; nothing is started."""
        folder.mkdir(exist_ok=True)
        ca = Path(cluster.keys.path("ca.crt"))
        self.volume = Volume(folder / "account", ca, account.token())
        config = kubeconfig(folder / "kubeconfig", str(ca), tokenFile=str(self.volume.token))
        self._fixed = [*KNFT, "run", "--kubeconfig", str(config), "--hostname-override", plan.NODE.node_name]
        super().__init__("knft", [], cluster.namespace, folder / "knft.log")
        self.use(*flags)

    def use(self, *flags: str) -> None:
        """Have other flags from the next start on."""
        self.set_command([*self._fixed, *_LEAVE_ALONE, "-v=2", *flags])
