"""A ``--node`` that the manifests do not have: each command that renders rules for a node warns."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from knft.cli.commands import cli
from tests.support.traced_cluster import FLAGS, write_manifests

WARNING = "--node: there is no Node 'nod-1'; the Nodes are node-1"
PACKET = ("--from", "192.0.2.99", "--to", "10.96.0.10:80")
COMMANDS = (
    ("diff",),
    ("diff", "--against", "nftables"),
    ("trace", *PACKET),
    ("trace", *PACKET, "--backend", "ipvs"),
    ("explain", "shop/open"),
    ("render",),
    ("render", "--backend", "iptables"),
)


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_manifests(tmp_path_factory.mktemp("cluster")))


def _run(command: tuple[str, ...], manifests: str, node: str) -> Result:
    flags = (*FLAGS[2:], "--node", node)
    return CliRunner().invoke(cli, [*command, "-f", manifests, *flags], catch_exceptions=False)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_node_that_is_probably_misspelt_is_a_warning(command: tuple[str, ...], manifests: str) -> None:
    misspelt, right = (_run(command, manifests, node) for node in ("nod-1", "node-1"))
    text = misspelt.stderr if command[0] == "render" else misspelt.stdout

    assert right.exit_code == 0
    assert text.count(WARNING) == 1
    assert "--node" not in right.stderr
    assert "there is no Node" not in right.output


def test_node_is_a_warning_beside_captured_rules(manifests: str, tmp_path: Path) -> None:
    render = ("render", "--backend", "iptables", "--family", "ipv4", "--part", "iptables-restore")
    saved = tmp_path / "saved"
    saved.write_text(_run(render, manifests, "node-1").stdout)

    assert WARNING in _run(("diff", "--iptables-save", str(saved)), manifests, "nod-1").stdout
