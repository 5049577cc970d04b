"""The modes that load a scenario's rules: knft's own, and kube-proxy's modes as ``knft render`` prints them."""

from pathlib import Path
from typing import ClassVar, Protocol

from click.testing import CliRunner

from knft.cli.commands import cli
from knft.kernel.addresses import local_addresses
from knft.kernel.process import WorkerProcess
from knft.source.paths import read_paths
from knft.sync.assemble import live_daemon
from tests.support.knft_command import NODE_FLAG, list_ruleset, remove_tables, sync_once, write_manifests
from tests.support.lab.namespace import Namespace
from tests.support.loaded_settings import load
from tests.support.packets.captured import (
    DEVICE,
    Captured,
    capture_iptables,
    capture_ipvs,
    capture_nftables,
    node_addresses,
)
from tests.support.scenario import Scenario


class Mode(Protocol):
    """A mode; ``name`` is its name in scenarios and in ``--backend``."""

    name: str

    def apply(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:
        """Load the rules of a scenario's cluster, or of the earlier one; ``folder`` is for its files."""

    def capture(self, node: Namespace) -> Captured:
        """Read the loaded rules, for the interpreters."""

    def check_listing(self, node: Namespace) -> None:
        """Check that the tools can list the loaded rules."""

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:
        """Remove the rules."""


def write_scenario(folder: Path, scenario: Scenario, *, earlier: bool) -> None:
    """Write a scenario's objects, or those of the cluster before it."""
    write_manifests(folder, scenario.earlier_manifests() if earlier else scenario.manifests())


class Nftables:
    """``knft run --once``."""

    name = "nftables"

    def apply(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:
        write_scenario(folder, scenario, earlier=earlier)
        sync_once(node, folder, *scenario.arguments())

    def capture(self, node: Namespace) -> Captured:
        return capture_nftables(node)

    def check_listing(self, node: Namespace) -> None:
        assert "table ip knft" in list_ruleset(node)

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:  # noqa: ARG002 - of the protocol
        remove_tables(node)
        assert "knft" not in list_ruleset(node)


class NftablesInProcess(Nftables):
    """The daemon of ``knft run`` in this process, because in the virtual machine a new process takes ten seconds."""

    def __init__(self, node: Namespace) -> None:
        with node.entered():
            self._library = WorkerProcess()

    def apply(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:
        write_scenario(folder, scenario, earlier=earlier)
        settings = load("--manifests", str(folder), *NODE_FLAG, *scenario.arguments())
        daemon = live_daemon(settings.config, self._library)
        daemon.handle(read_paths([str(folder)], None).changes)
        with node.entered():
            daemon.update_local_addresses(local_addresses())
            assert daemon.sync()

    def close(self) -> None:
        """End the process of libnftables."""
        self._library.close()


class Iptables:
    """The script of ``knft render --backend iptables``, run on the node."""

    name = "iptables"
    _saves: ClassVar[dict[str, str]] = {"ipv4": "iptables-save", "ipv6": "ip6tables-save"}

    def apply(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:
        write_scenario(folder, scenario, earlier=earlier)
        for family in self._saves:
            _run(node, self._script(node, folder, scenario, family))

    def _script(self, node: Namespace, folder: Path, scenario: Scenario, family: str, *more: str) -> str:
        saved = folder / f"{family}.saved"
        saved.write_text(node.run([self._saves[family]]).stdout)
        existing = ("--existing", str(saved)) if "COMMIT" in saved.read_text() else ()
        # Not every kernel has nfacct.
        return render(node, folder, scenario, self.name, "--family", family, "--no-nfacct", *existing, *more)

    def capture(self, node: Namespace) -> Captured:
        return capture_iptables(node)

    def check_listing(self, node: Namespace) -> None:
        for program in self._saves.values():
            assert ":KUBE-SERVICES " in node.run([program, "-t", "nat"]).stdout

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:
        for family, save in self._saves.items():
            _run(node, self._script(node, folder, scenario, family, "--cleanup"))
            # Cleanup leaves the kubelet's chain alone (docs/behaviour/iptables.md#cleanup).
            left = [line for line in node.run([save]).stdout.splitlines() if "KUBE-" in line]
            assert [line for line in left if "KUBE-FIREWALL" not in line] == []
        node.run(["nft", "flush", "ruleset"])


class Ipvs:
    """The script of ``knft render --backend ipvs``, run on the node; for kernels that have ip_vs."""

    name = "ipvs"
    _ONCE = frozenset({"preconditions", "sysctls", "timeouts", "chains", "jumps"})
    """Parts of the script that are always the same. In the virtual machine each command takes a tenth of a second."""

    def __init__(self) -> None:
        self._prepared: set[str] = set()

    def apply(self, node: Namespace, folder: Path, scenario: Scenario, *, earlier: bool) -> None:
        write_scenario(folder, scenario, earlier=earlier)
        before: tuple[str, ...] = ()
        if scenario.before is not None and not earlier:
            (folder / "before").mkdir(exist_ok=True)
            write_scenario(folder / "before", scenario, earlier=True)
            before = ("--before", str(folder / "before"))
        for family in ("ipv4", "ipv6"):
            script = render(node, folder, scenario, self.name, "--family", family, *_existing(node, folder), *before)
            skipped = self._ONCE if family in self._prepared else frozenset[str]()
            _run(node, _without(script, skipped))
            self._prepared.add(family)

    def capture(self, node: Namespace) -> Captured:
        return capture_ipvs(node)

    def check_listing(self, node: Namespace) -> None:
        assert ":KUBE-SERVICES " in node.run(["iptables-save", "-t", "nat"]).stdout
        assert DEVICE in node.run(["ip", "link", "show", "dev", DEVICE]).stdout

    def clean(self, node: Namespace, folder: Path, scenario: Scenario) -> None:  # noqa: ARG002 - of the protocol
        """Remove virtual servers and the device, and empty the ipsets, which the next scenario fills."""
        for command in (["ipvsadm", "-C"], ["ip", "link", "delete", DEVICE], ["ipset", "flush"]):
            node.run(command)

    def remove(self, node: Namespace, folder: Path, scenario: Scenario) -> None:
        """Remove everything, by the cleanup scripts of both families."""
        self._prepared.clear()
        for family in ("ipv4", "ipv6"):
            _run(node, render(node, folder, scenario, self.name, "--family", family, "--cleanup"))


def _existing(node: Namespace, folder: Path) -> tuple[str, ...]:
    """Return the flags for existing virtual servers and bound addresses."""
    servers, bound = folder / "servers", folder / "bound"
    servers.write_text(node.run(["ipvsadm", "-Sn"]).stdout + node.run(["ipvsadm", "-Ln"]).stdout)
    bound.write_text(node.run(["ip", "-o", "address", "show", "dev", DEVICE], check=False).stdout)
    return ("--existing-ipvs", str(servers), "--existing-addresses", str(bound))


def _without(script: str, parts: frozenset[str]) -> str:
    """Return a script without some of its parts. A part begins with a blank line and a comment with its name."""
    sections = script.split("\n\n")
    return "\n\n".join(section for section in sections if section.partition("\n")[0].removeprefix("# ") not in parts)


def render(node: Namespace, folder: Path, scenario: Scenario, backend: str, *more: str) -> str:
    """Return the output of ``knft render`` for the objects in ``folder``.

    It runs in this process: a new process takes seconds in the virtual machine.
    """
    flags = (*NODE_FLAG, *scenario.arguments(), *_local_addresses(node))
    arguments = ["render", "-f", str(folder / "objects.yaml"), "--backend", backend, *flags, *more]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def _local_addresses(node: Namespace) -> list[str]:
    """Return the flags that name the node's own addresses."""
    return [f"--local-address={address}" for address in node_addresses(node)]


def _run(node: Namespace, script: str) -> None:
    node.run(["sh", "-e"], stdin=script)
