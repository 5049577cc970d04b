"""``knft trace`` on the rules of a node, and on captures of them."""

import json
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.knft_command import KNFT, knft
from tests.support.lab.namespace import Namespace
from tests.support.loaded_examples import EXAMPLES, NODE, machine_state

pytestmark = pytest.mark.kernel


def _trace(node: Namespace, source: str, to: str, *flags: str) -> dict[str, Any]:
    done = knft(node, "trace", "--from", source, "--to", to, "-o", "json", *flags)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _endings(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    (path,) = found["ways"]
    return {(end["endpoint"], end["source"], end["why"]) for end in path["ends"]}


NODE_PORT = {
    (f"{address}:8080", "masqueraded", "externalTrafficPolicy Cluster")
    for address in ("10.244.1.11", "10.244.2.11", "10.244.2.12")
}


def test_live_tables_and_their_captures_give_the_same_trace(node: Namespace, tmp_path: Path) -> None:
    """A live trace reads the node's addresses from its interfaces; a captured one needs --node-ip."""
    knft(node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    before = machine_state(node)
    live = _trace(node, "192.0.2.99", "192.0.2.11:30080")
    assert (live["service"], _endings(live)) == ("shop/frontend:http", NODE_PORT)
    assert live["rule_set"] == "knft's tables on this machine"
    assert _trace(node, "192.0.2.11", "10.96.0.10:80")["sender"] == "node"
    assert machine_state(node) == before

    capture = tmp_path / "nft.json"
    capture.write_text(node.run(["nft", "-j", "list", "ruleset"]).stdout)
    captured = _trace(node, "192.0.2.99", "192.0.2.11:30080", "--nft-json", str(capture), "--node-ip", "192.0.2.11")
    assert _endings(captured) == NODE_PORT


def test_captured_kube_proxy_rules_are_traced(kube_proxy_node: Namespace, tmp_path: Path) -> None:
    capture = tmp_path / "saved"
    capture.write_text(kube_proxy_node.run(["iptables-save"]).stdout)
    flags = ("--iptables-save", str(capture), "--local-address", "192.0.2.11")
    found = _trace(kube_proxy_node, "192.0.2.99", "192.0.2.11:30080", *flags)
    assert (found["service"], _endings(found)) == ("shop/frontend:http", NODE_PORT)


def test_remembered_client_is_read_from_the_table(node: Namespace, tmp_path: Path) -> None:
    """A client with an element in an affinity set reaches its earlier endpoint."""
    for path in EXAMPLES.iterdir():
        text = path.read_text().replace("  type: NodePort\n", "  type: NodePort\n  sessionAffinity: ClientIP\n")
        (tmp_path / path.name).write_text(text)
    knft(node, "run", "--once", "--manifests", str(tmp_path), *NODE)
    listed = node.run(["nft", "list", "map", "ip", "knft", "endpoint-ids-tcp"]).stdout
    number = re.findall(r"10\.96\.0\.10 \. 80 \. \d+ : ([0-9a-f]+:[0-9a-f]+)", listed)[0]
    assert _trace(node, "192.0.2.99", "10.96.0.10:80")["client"] == "new"
    element = f"add element ip knft affinity-clients {{ 192.0.2.99 . {number} timeout 100s }}"
    node.run(["nft", element])
    found = _trace(node, "192.0.2.99", "10.96.0.10:80")
    assert found["client"] == "is remembered"
    assert len(_endings(found)) == 1


def test_machine_without_tables_is_an_error(node: Namespace) -> None:
    done = node.run([*KNFT, "trace", "--from", "192.0.2.99", "--to", "10.96.0.10:80"], check=False)
    assert done.returncode == 2
    assert "this machine has no table of knft: name manifests with -f" in done.stderr


def test_newest_of_chains_with_equal_priority_comes_first(node: Namespace, tmp_path: Path) -> None:
    """nft lists the oldest chain first; the kernel's counters show which chain saw the packet."""
    for table, verdict in (("older", "accept"), ("younger", "drop")):
        for command in (
            f"add table ip {table}",
            f"add chain ip {table} c {{ type filter hook output priority 0; }}",
            f"add rule ip {table} c counter {verdict}",
        ):
            node.run(["nft", command])
    with node.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, suppress(PermissionError):
        sender.sendto(b"packet", ("127.0.0.1", 9))
    listed = node.run(["nft", "-j", "list", "ruleset"]).stdout
    counted = re.findall(r'"counter": {"packets": (\d+)', listed)
    capture = tmp_path / "nft.json"
    capture.write_text(listed)
    found = _trace(node, "127.0.0.1", "127.0.0.1:9/udp", "--nft-json", str(capture))
    chains = [rule["chain"] for path in found["ways"] for rule in path["rules"]]
    assert (counted, chains) == (["0", "1"], ["ip younger c"])
