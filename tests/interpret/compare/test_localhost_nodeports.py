"""With the gate of kube-proxy 1.37, both reject the same packets to NodePorts at loopback addresses."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from knft.cli.commands import cli
from tests.interpret.compare.test_contested_nftables import capture, objects

TABLE = {"family": "ip", "table": "kube-proxy"}
REJECTS, CHAIN = "localhost-nodeport-reject-ports", "localhost-nodeport-reject-udp"


def _with_rejections(listing: Any) -> dict[str, Any]:
    """Add what kube-proxy 1.37 has with the gate, for UDP."""
    destination = {"payload": {"protocol": "ip", "field": "daddr"}}
    to_loopback = {"match": {"op": "==", "left": destination, "right": {"prefix": {"addr": "127.0.0.0", "len": 8}}}}
    node_port = {"concat": [{"meta": {"key": "l4proto"}}, {"payload": {"protocol": "th", "field": "dport"}}]}
    counter = "localhost-nodeport-rejected-udp"
    added = [
        {"counter": {**TABLE, "name": counter, "handle": 900, "packets": 0, "bytes": 0}},
        {
            "map": {
                **TABLE, "name": REJECTS, "handle": 901, "type": ["inet_proto", "inet_service"], "map": "verdict",
                "elem": [[{"concat": ["udp", 30053]}, {"goto": {"target": CHAIN}}]],
            }
        },
        {"chain": {**TABLE, "name": CHAIN, "handle": 902}},
        {"rule": {**TABLE, "chain": CHAIN, "handle": 903, "expr": [{"counter": counter}, {"reject": None}]}},
        {
            "rule": {
                **TABLE, "chain": "nodeport-endpoints-check", "handle": 904,
                "expr": [to_loopback, {"vmap": {"key": node_port, "data": f"@{REJECTS}"}}],
            }
        },
    ]  # fmt: skip
    return {"nftables": [*listing["nftables"], *added]}


@pytest.mark.parametrize(("rejects", "status"), [(True, 0), (False, 1)])
def test_rejections_are_compared(tmp_path: Path, *, rejects: bool, status: int) -> None:
    port = {"port": 53, "nodePort": 30053, "protocol": "UDP"}
    manifests = objects(tmp_path, "objects.json", "rival", ("sticky",), port=port, claim={"type": "NodePort"})
    other = json.loads(Path(manifests).read_text())
    for item in other["items"]:
        if item["kind"] == "Service" and item["metadata"]["name"] != "sticky":
            del item["spec"]["ports"][0]["nodePort"]
    Path(manifests).write_text(json.dumps(other))
    kube_proxy = Path(capture(tmp_path, manifests))
    if rejects:
        kube_proxy.write_text(json.dumps(_with_rejections(json.loads(kube_proxy.read_text()))))
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "hostnameOverride": "node-1",
        "clusterCIDR": "10.244.0.0/16",
        "featureGates": {"KubeProxyNFTablesLocalhostNodePorts": True},
        "nodePortAddresses": ["0.0.0.0/0", "127.0.0.0/8"],
    }
    settings = tmp_path / "config.yaml"
    settings.write_text(json.dumps(config))
    arguments = ["diff", "-f", manifests, "--nft-json", str(kube_proxy), "--config", str(settings), "--node", "node-1"]
    done = CliRunner().invoke(cli, [*arguments, "-o", "json"], catch_exceptions=False)
    assert done.exit_code == status, done.output
    found = [group for family in json.loads(done.stdout)["families"] for group in family["differences"]]
    assert bool(found) is not rejects
    assert all("sticky" in json.dumps(group) and "30053" in json.dumps(group) for group in found)
