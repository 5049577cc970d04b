"""``knft trace`` on what is in force on a node, and on what the tools print there."""

import json
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.comparison.examples import EXAMPLES, NODE, in_force
from tests.support.knft_command import KNFT, knft
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


def _trace(node: Namespace, source: str, to: str, *flags: str) -> dict[str, Any]:
    done = knft(node, "trace", "--from", source, "--to", to, "-o", "json", *flags)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _seen(found: dict[str, Any]) -> set[tuple[str, str, str]]:
    (way,) = found["ways"]
    return {(end["endpoint"], end["source"], end["why"]) for end in way["ends"]}


NODE_PORT = {
    (f"{address}:8080", "masqueraded", "externalTrafficPolicy Cluster")
    for address in ("10.244.1.11", "10.244.2.11", "10.244.2.12")
}


def test_knfts_tables_and_captures_of_them_say_the_same(node: Namespace, tmp_path: Path) -> None:
    """The node's addresses are known from its interfaces; for a capture somebody has to say them."""
    knft(node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    before = in_force(node)
    live = _trace(node, "192.0.2.99", "192.0.2.11:30080")
    assert (live["service"], _seen(live)) == ("shop/frontend:http", NODE_PORT)
    assert live["rule_set"] == "knft's tables on this machine"
    assert _trace(node, "192.0.2.11", "10.96.0.10:80")["sender"] == "node"
    assert in_force(node) == before

    capture = tmp_path / "nft.json"
    capture.write_text(node.run(["nft", "-j", "list", "ruleset"]).stdout)
    captured = _trace(node, "192.0.2.99", "192.0.2.11:30080", "--nft-json", str(capture), "--node-ip", "192.0.2.11")
    assert _seen(captured) == NODE_PORT


def test_kube_proxys_rules_as_iptables_save_prints_them(served: Namespace, tmp_path: Path) -> None:
    capture = tmp_path / "saved"
    capture.write_text(served.run(["iptables-save"]).stdout)
    flags = ("--iptables-save", str(capture), "--local-address", "192.0.2.11")
    found = _trace(served, "192.0.2.99", "192.0.2.11:30080", *flags)
    assert (found["service"], _seen(found)) == ("shop/frontend:http", NODE_PORT)


def test_who_is_remembered_is_read_from_the_table(node: Namespace, tmp_path: Path) -> None:
    """A client that stands in one of the dynamic sets goes where it went."""
    for path in EXAMPLES.iterdir():
        text = path.read_text().replace("  type: NodePort\n", "  type: NodePort\n  sessionAffinity: ClientIP\n")
        (tmp_path / path.name).write_text(text)
    knft(node, "run", "--once", "--manifests", str(tmp_path), *NODE)
    listed = node.run(["nft", "list", "map", "ip", "knft", "sticky-ports"]).stdout
    (number,) = re.findall(r'(\d+) comment "[^"]* shop/frontend:http"', listed)
    assert _trace(node, "192.0.2.99", "10.96.0.10:80")["client"] == "new"
    element = f"add element ip knft affinity {{ 192.0.2.99 . {number} . 0 timeout 100s }}"
    node.run(["nft", element])
    found = _trace(node, "192.0.2.99", "10.96.0.10:80")
    assert found["client"] == "is remembered"
    assert len(_seen(found)) == 1


def test_a_machine_without_tables_has_nothing_to_trace_through(node: Namespace) -> None:
    done = node.run([*KNFT, "trace", "--from", "192.0.2.99", "--to", "10.96.0.10:80"], check=False)
    assert done.returncode == 2
    assert "this machine has no table of knft: name manifests with -f" in done.stderr


def test_of_chains_with_one_priority_the_youngest_is_met_first(node: Namespace, tmp_path: Path) -> None:
    """Listings have them the other way round; the kernel's counters say which of them saw a packet."""
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
    met = [rule["chain"] for way in found["ways"] for rule in way["rules"]]
    assert (counted, met) == (["0", "1"], ["ip younger c"])
