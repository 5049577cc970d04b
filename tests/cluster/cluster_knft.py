"""ManifestKnft: ``knft run`` as in a DaemonSet, which watches the API server as its ServiceAccount."""

from collections.abc import Sequence
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.server_process import ServerProcess
from tests.cluster.service_account import ServiceAccount, TokenVolume, kubeconfig
from tests.support.knft_command import KNFT
from tests.support.lab import plan
from tests.support.lab.namespace import Namespace
from tests.support.pod_environment import pod_prefix

# nf_conntrack_max applies to the whole host, so tests do not change it.
_KEEP_HOST_SYSCTLS = ("--conntrack-max-per-core=0", "--conntrack-min=0")


class ClusterKnft(ServerProcess):
    """The process on the node; tests may replace its credential files."""

    def __init__(
        self,
        cluster: Cluster,
        account: ServiceAccount,
        folder: Path,
        *flags: str,
        node: Namespace | None = None,
        command: Sequence[str] = KNFT,
    ) -> None:
        """Write a kubeconfig with a token; start nothing yet.

        ``node`` is its network namespace, by default that of the API server; ``command`` runs knft.
        """
        folder.mkdir(exist_ok=True)
        ca = Path(cluster.keys.path("ca.crt"))
        self.volume = TokenVolume(folder / "account", ca, account.token())
        config = kubeconfig(folder / "kubeconfig", self.volume)
        self._fixed = [*command, "run", "--kubeconfig", str(config), "--hostname-override", plan.NODE.node_name]
        super().__init__("knft", [], node or cluster.namespace, folder / "knft.log")
        self.set_flags(*flags)

    def set_flags(self, *flags: str) -> None:
        """Use other flags from the next start on."""
        self.set_command([*self._fixed, *_KEEP_HOST_SYSCTLS, "-v=2", *flags])


class KnftInPod(ClusterKnft):
    """A ManifestKnft with the configuration of a pod: the ServiceAccount volume instead of a kubeconfig."""

    def set_flags(self, *flags: str) -> None:
        """Use other flags from the next start on."""
        knft = [*KNFT, "run", "--hostname-override", plan.NODE.node_name, *_KEEP_HOST_SYSCTLS, "-v=2", *flags]
        self.set_command([*pod_prefix(self.volume.folder, 6443), *knft])
