"""With the gate of kube-proxy 1.37, both reject the same packets to NodePorts at loopback addresses."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from knft.cli.commands import cli
from knft.families import Family
from tests.interpret.compare.test_contested_nftables import capture
from tests.support.kernel_harness import service, slices

NODE_PORT = 30053
REJECTS, CHECK = "localhost-nodeport-reject-ports", "nodeport-endpoints-check"
NETWORKS = {Family.IPV4: ("127.0.0.0", 8), Family.IPV6: ("::1", 128)}
NODE_PORT_ADDRESSES = ["0.0.0.0/0", "::/0"]
LOOPBACK_ADDRESSES = ["127.0.0.0/8", "::1/128"]


def _rejections(family: Family, protocol: str) -> list[dict[str, Any]]:
    """Return what kube-proxy 1.37 adds to its table with the gate, for a protocol."""
    table = {"family": family.nft, "table": "kube-proxy"}
    chain, counter = f"localhost-nodeport-reject-{protocol}", f"localhost-nodeport-rejected-{protocol}"
    address, length = NETWORKS[family]
    destination = {"payload": {"protocol": family.nft, "field": "daddr"}}
    to_loopback = {"match": {"op": "==", "left": destination, "right": {"prefix": {"addr": address, "len": length}}}}
    node_port = {"concat": [{"meta": {"key": "l4proto"}}, {"payload": {"protocol": "th", "field": "dport"}}]}
    return [
        {"counter": {**table, "name": counter, "handle": 900, "packets": 0, "bytes": 0}},
        {
            "map": {
                **table, "name": REJECTS, "handle": 901, "type": ["inet_proto", "inet_service"], "map": "verdict",
                "elem": [[{"concat": [protocol, NODE_PORT]}, {"goto": {"target": chain}}]],
            }
        },
        {"chain": {**table, "name": chain, "handle": 902}},
        {"rule": {**table, "chain": chain, "handle": 903, "expr": [{"counter": counter}, {"reject": None}]}},
        {
            "rule": {
                **table, "chain": CHECK, "handle": 904,
                "expr": [to_loopback, {"vmap": {"key": node_port, "data": f"@{REJECTS}"}}],
            }
        },
    ]  # fmt: skip


def _manifests(folder: Path, protocol: str) -> str:
    """Write a node and a dual-stack Service with a NodePort; return the file's path."""
    item = service("sticky", node_port=NODE_PORT, sessionAffinity="ClientIP")
    item["spec"]["ports"][0]["protocol"] = protocol.upper()
    found = slices("sticky", [11])
    for each in found:
        each["ports"][0]["protocol"] = protocol.upper()
    addresses = [{"type": "InternalIP", "address": address} for address in ("192.0.2.1", "2001:db8::1")]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": addresses}}
    path = folder / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, item, *found]}))
    return str(path)


def _config(folder: Path, protocol: str, *, gate: bool) -> str:
    """Write kube-proxy's configuration; TCP is rejected only if no loopback address accepts NodePorts."""
    served = [] if protocol == "tcp" else LOOPBACK_ADDRESSES
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "hostnameOverride": "node-1",
        "clusterCIDR": "10.244.0.0/16",
        "featureGates": {"KubeProxyNFTablesLocalhostNodePorts": gate},
        "nodePortAddresses": [*NODE_PORT_ADDRESSES, *served],
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return str(path)


def _compared(
    folder: Path, protocol: str, rejecting: Collection[Family], *, gate: bool
) -> tuple[int, dict[str, list[str]]]:
    """Return the exit status of ``knft diff`` and the differences of each family; kube-proxy rejects in some."""
    manifests = _manifests(folder, protocol)
    kube_proxy = Path(capture(folder, manifests))
    listed = json.loads(kube_proxy.read_text())["nftables"]
    added = [item for family in rejecting for item in _rejections(family, protocol)]
    kube_proxy.write_text(json.dumps({"nftables": [*listed, *added]}))
    config = _config(folder, protocol, gate=gate)
    flags = ["--nft-json", str(kube_proxy), "--config", config, "--node", "node-1", "-o", "json"]
    done = CliRunner().invoke(cli, ["diff", "-f", manifests, *flags], catch_exceptions=False)
    return done.exit_code, {
        family["family"]: [json.dumps(group) for group in family["differences"]]
        for family in json.loads(done.stdout)["families"]
    }


@pytest.mark.parametrize("protocol", ["tcp", "udp", "sctp"])
@pytest.mark.parametrize("gate", [True, False], ids=["knft with the gate", "knft without the gate"])
@pytest.mark.parametrize(
    "rejecting",
    [tuple(Family), (Family.IPV6,), (Family.IPV4,), ()],
    ids=["both families", "IPv6 only", "IPv4 only", "no family"],
)
def test_rejections_are_compared(tmp_path: Path, rejecting: Collection[Family], protocol: str, *, gate: bool) -> None:
    """Where only one side rejects, there is a difference."""
    status, found = _compared(tmp_path, protocol, rejecting, gate=gate)
    different = {family.value for family in Family if (family in rejecting) != gate}
    assert {family for family, groups in found.items() if groups} == different, found
    assert status == (1 if different else 0)
    assert all("sticky" in group and str(NODE_PORT) in group for groups in found.values() for group in groups)
