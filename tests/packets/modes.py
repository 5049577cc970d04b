"""The ways to put a scenario in force: knft itself, and kube-proxy's other modes as ``knft render`` prints them."""

from pathlib import Path
from typing import Protocol

from tests.lab.namespace import Namespace
from tests.packets.node import NODE_FLAG, knft, listed, sync_once, write_manifests
from tests.packets.scenario import Scenario

DEVICE = "kube-ipvs0"


class Mode(Protocol):
    """One way; ``name`` is what ``--backend`` and scenarios call it."""

    name: str

    def program(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:
        """Put a scenario's cluster in force, or the one before it; ``folder`` is for its files."""

    def listed(self, node: Namespace) -> None:
        """List what is in force, and fail where that cannot be done."""

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:
        """Take everything away."""


def write(folder: Path, scenario: Scenario, *, earlier: bool) -> None:
    """Write a scenario's objects, or those of the cluster before it."""
    write_manifests(folder, scenario.earlier_manifests() if earlier else scenario.manifests())


class Nftables:
    """``knft run --once``."""

    name = "nftables"

    def program(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:
        write(folder, scenario, earlier=earlier)
        sync_once(node, folder, *scenario.arguments())

    def listed(self, node: Namespace) -> None:
        assert "table ip knft" in listed(node)

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:  # noqa: ARG002 - Mode's
        knft(node, "cleanup")
        assert listed(node) == ""


class Iptables:
    """The script of ``knft render --backend iptables``, run on the node; kube-proxy is the one who runs these."""

    name = "iptables"

    def program(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:
        write(folder, scenario, earlier=earlier)
        for family, save in (("ipv4", "iptables-save"), ("ipv6", "ip6tables-save")):
            existing = folder / f"{family}.saved"
            # It has a table to print even where nobody has made one.
            existing.write_text(node.run([save, "-t", "nat"]).stdout)
            _run(node, self._script(node, folder, scenario, family, "--existing", str(existing)))

    def _script(self, node: Namespace, folder: Path, scenario: Scenario, family: str, *more: str) -> str:
        # This kernel has no counters of nfacct.
        return render(node, folder, scenario, self.name, "--family", family, "--no-nfacct", *more)

    def listed(self, node: Namespace) -> None:
        for program in ("iptables-save", "ip6tables-save"):
            assert ":KUBE-SERVICES " in node.run([program, "-t", "nat"]).stdout

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:
        for family, save in (("ipv4", "iptables-save"), ("ipv6", "ip6tables-save")):
            existing = folder / f"{family}.saved"
            existing.write_text(node.run([save]).stdout)
            _run(node, self._script(node, folder, scenario, family, "--cleanup", "--existing", str(existing)))
            left = {line for line in node.run([save]).stdout.splitlines() if "KUBE-" in line}
            # The kubelet's chain, which cleanup leaves alone (D.10).
            assert all("KUBE-FIREWALL" in line for line in left), left
        node.run(["nft", "flush", "ruleset"])


def render(node: Namespace, folder: Path, scenario: Scenario, backend: str, *more: str) -> str:
    """Return what ``knft render`` prints for the objects in ``folder``."""
    flags = (*NODE_FLAG, *scenario.arguments(), *own_addresses(node))
    return knft(node, "render", "-f", str(folder / "objects.yaml"), "--backend", backend, *flags, *more).stdout


def own_addresses(node: Namespace) -> list[str]:
    """Return the flags that name the addresses of all the node's interfaces, but kube-proxy's own."""
    lines = node.run(["ip", "-o", "address", "show"]).stdout.splitlines()
    fields = [line.split() for line in lines]
    found = [words[3].partition("/")[0] for words in fields if words[1] != DEVICE]
    return [f"--local-address={address}" for address in found]


def _run(node: Namespace, script: str) -> None:
    node.run(["sh", "-e"], stdin=script)
