"""Each rule version of kube-proxy's modes can be rendered, compared with knft's rules, and traced."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from knft.cli.commands import cli
from knft_compat.ipvs import RuleVersion
from tests.support.traced_cluster import FLAGS, write_manifests

MODES = [("iptables", ()), *(("ipvs", ("--vintage", version.value)) for version in RuleVersion)]
each_rule_version = pytest.mark.parametrize(
    ("mode", "flags"), MODES, ids=[" ".join((mode, *flags[1:])) for mode, flags in MODES]
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_manifests(tmp_path_factory.mktemp("versions"))


def _run(command: str, cluster: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [command, "-f", str(cluster), *FLAGS, *arguments], catch_exceptions=False)


@each_rule_version
def test_rule_version_can_be_compared(cluster: Path, mode: str, flags: tuple[str, ...]) -> None:
    """Document 003 has no KUBE-IPVS-FILTER, so packets to unused ports of cluster IPs reach the node itself."""
    done = _run("diff", cluster, "--against", mode, *flags)
    outcomes = {line.partition("    kube-proxy (rendered)  ")[2].strip() for line in done.stdout.splitlines()} - {""}
    if "document-003" in flags:
        assert (done.exit_code, outcomes) == (1, {"is delivered, not translated"})
    else:
        assert (done.exit_code, outcomes) == (0, set())
    assert " 0 undecided" in done.stdout


@each_rule_version
def test_rule_version_can_be_traced(cluster: Path, mode: str, flags: tuple[str, ...]) -> None:
    """An allowed client reaches the endpoints; another one is dropped, in document 003 by rules of the kubelet."""
    to = ("--backend", mode, *flags, "--to", "203.0.113.5:80/tcp")
    allowed = _run("trace", cluster, *to, "--from", "198.51.100.9")
    assert "reaches 10.244.1.11:8080, masqueraded" in allowed.stdout
    denied = _run("trace", cluster, *to, "--from", "192.0.2.99")
    assert denied.stdout.endswith("\nis dropped: the source is not in loadBalancerSourceRanges\n")
