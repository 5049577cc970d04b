import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from knft import __version__
from knft.cli.commands import SHELLS, cli
from tests.packages.conftest import Packages
from tests.packages.host import Host, new_host
from tests.packages.older import OLD_LINE, REMOVED_FILE, VERSION
from tests.support.example_shop import EXAMPLES, FRONTEND_PODS, FRONTEND_PORT
from tests.support.lab import plan
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import NO_ANSWER, OpenConnection, dial_many
from tests.support.logged_process import LoggedProcess
from tests.support.waiting import TIMEOUT

SERVICES = (("10.96.0.10", 80), ("fd00:10:96::10", 80))
NODE_PORTS = (("192.0.2.11", 30080), ("2001:db8:1::11", 30080))
OWN_LINE = "# A line of the administrator."
OTHER_TABLES = ["table ip other", "table ip6 other"]
MANUAL_PAGES = ("man5/knft-config.5", "man8/knft.8", *(f"man8/knft-{name}.8" for name in cli.commands))
COMPLETIONS = {
    "bash": "bash-completion/completions/knft",
    "zsh": "zsh/vendor-completions/_knft",
    "fish": "fish/vendor_completions.d/knft.fish",
}
WITHOUT_NFT = "debian13"
"""The release in which nft is purged before knft; in the other, knft is purged while nft can delete its tables."""


def test_a_package_is_installed_upgraded_removed_and_purged(packages: Packages, tmp_path: Path) -> None:
    """Its rules serve connections from the first start to the purge, and the purge leaves no file.

    It deletes the rules if nft is installed, and no table of another program.
    """
    with Lab() as lab, Responders() as servers:
        for pod in FRONTEND_PODS:
            servers.serve(lab.host(pod), FRONTEND_PORT)
        node = lab.host("node").namespace
        with new_host(packages.release, packages.folder, node, {EXAMPLES: "/manifests"}) as host:
            files, users = host.files(), host.read("/etc/passwd") + host.read("/etc/group")
            host.apt("install", "nftables", f"/packages/{packages.older.name}")
            _check_older_installation(host)
            with _running_knft(host, tmp_path):
                _check_traffic(lab)
                rules = _rules(host)
                with OpenConnection(lab.host("local-3"), *SERVICES[0]) as connection:
                    host.apt("install", f"/packages/{packages.newest.name}")
                    assert _rules(host) == rules
                    _check_newer_installation(host)
                    assert connection.echoes(b"after the upgrade")
            with OpenConnection(lab.host("local-3"), *SERVICES[0]) as connection:
                with _running_knft(host, tmp_path):
                    assert _rules(host) == rules
                host.apt("remove", "knft")
                assert _rules(host) == rules
                assert host.run("sh", "-c", "command -v knft", check=False).returncode != 0
                assert connection.echoes(b"after the removal")
            _check_traffic(lab)
            _purge(host, lab, nft_first=packages.release == WITHOUT_NFT)
            assert host.files() - files == set()
            assert host.read("/etc/passwd") + host.read("/etc/group") == users


def _check_older_installation(host: Host) -> None:
    """The service is neither enabled nor started; knft's files are there."""
    assert host.run("knft", "--version").stdout == f"knft {VERSION}\n"
    assert host.run("systemctl", "is-enabled", "knft", check=False).stdout == "disabled\n"
    assert "knft" not in host.run("sh", "-c", "cat /proc/[0-9]*/cmdline").stdout
    assert "knft:x:" in host.read("/etc/passwd")
    host.run("test", "-e", f"/{REMOVED_FILE}")
    # A change of the administrator, which the upgrade keeps.
    host.run("sh", "-c", f"echo '{OWN_LINE}' >>/etc/knft/config.yaml")


def _check_newer_installation(host: Host) -> None:
    found = json.loads(host.run("knft", "version", "-o", "json").stdout)
    assert found["knft"] == __version__
    assert found["installation"]["method"] == "deb"
    # In Debian 12 through a link in the environment of wheels.
    python = host.read("/usr/bin/knft").partition("\n")[0].removeprefix("#!").split()
    code = "import nftables, os; print(os.path.realpath(nftables.__path__[0]))"
    assert host.run(*python, "-c", code).stdout == "/usr/lib/python3/dist-packages/nftables\n"
    assert host.run("systemctl", "is-enabled", "knft", check=False).stdout == "disabled\n"
    assert host.run("test", "-e", f"/{REMOVED_FILE}", check=False).returncode == 1
    configuration = host.read("/etc/knft/config.yaml")
    assert configuration.startswith(OLD_LINE)
    assert OWN_LINE in configuration
    host.run("knft", "run", "--config", "/etc/knft/config.yaml", "--write-config-to", "/tmp/written")  # noqa: S108
    host.run("ls", *(f"/usr/share/man/{page}.gz" for page in MANUAL_PAGES))
    assert set(COMPLETIONS) == set(SHELLS)
    for shell, path in COMPLETIONS.items():
        assert host.read(f"/usr/share/{path}") == host.run("knft", "completion", shell).stdout


def _purge(host: Host, lab: Lab, *, nft_first: bool) -> None:
    """Purge knft's package and nft; other tables stay, and without nft knft's rules too."""
    for table in OTHER_TABLES:
        host.run("nft", f"add {table}")
    if nft_first:
        host.apt("purge", "--autoremove", "nftables")
    host.apt("purge", "knft")
    if nft_first:
        _check_traffic(lab)
    else:
        assert host.run("nft", "list", "tables").stdout.splitlines() == OTHER_TABLES
        host.apt("purge", "--autoremove", "nftables")


@contextmanager
def _running_knft(host: Host, folder: Path) -> Iterator[None]:
    """Run the installed knft until the block ends."""
    arguments = ("--manifests", "/manifests", "--node", plan.NODE.node_name, "-v2")
    ranges = ("--cluster-cidr", f"{plan.CLUSTER.ipv4},{plan.CLUSTER.ipv6}")
    # The process that enters the host's namespaces does not pass signals on.
    command = host.command("sh", "-c", 'echo $$ >/run/knft.pid; exec "$@"', "sh", "knft", "run", *arguments, *ranges)
    knft = LoggedProcess(host.namespace, command, folder / "log")
    try:
        knft.wait_until(lambda: knft.log_text().count("full sync") >= 2)
        yield
        assert knft.process.poll() is None, knft.log_text()
    finally:
        host.run("sh", "-c", "kill $(cat /run/knft.pid)", check=False)
        knft.process.wait(TIMEOUT)


def _check_traffic(lab: Lab) -> None:
    """Each pod of the Service answers clients in a pod, and outside of the cluster."""
    pods = {"local-1", "remote-1", "remote-2"}
    for client, targets in (("local-3", SERVICES), ("outside", NODE_PORTS)):
        for address, port in targets:
            counts = dial_many(lab.host(client), address, port, "tcp", 60)
            assert counts[NO_ANSWER] == 0
            assert set(counts) - {NO_ANSWER} == pods


def _rules(host: Host) -> list[str]:
    """Return the rules as the host's nft lists them: that of this machine may be too old for the host's libnftables.

    Whether a process owns the table, and which, is left out.
    """
    listed = host.run("nft", "list", "ruleset").stdout
    return [line.partition(" # ")[0] for line in listed.splitlines() if not line.startswith("\tflags ")]
