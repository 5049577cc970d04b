"""A contested frontend that mode nftables gives to another Service than knft is expected; other differences are not."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from knft.cli.commands import cli
from knft.cli.manifests import read_manifests
from knft.comparison.kube_proxy_inputs import KubeProxyOptions, ObjectSnapshots, sync_inputs
from knft.config import Config
from knft_compat import nftables

CONFIG = Config("node-1", cluster_cidrs=("10.244.0.0/16",))


SERVICES = ("rival", "sticky", "third")
CONTESTED = ("rival", "sticky")
TCP_PORT: dict[str, Any] = {"port": 80, "protocol": "TCP"}
EXTERNAL_IP: dict[str, Any] = {"externalIPs": ["203.0.113.10"]}


def objects(
    folder: Path,
    name: str,
    older: str,
    rivals: tuple[str, ...] = CONTESTED,
    *,
    port: dict[str, Any] = TCP_PORT,
    claim: dict[str, Any] = EXTERNAL_IP,
    served: tuple[str, ...] = SERVICES,
) -> str:
    """Write a node and Services of which ``rivals`` claim one frontend; ``older`` gets it. Return the file's path."""
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node-1"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
        }
    ]
    for number, service in enumerate(SERVICES, 1):
        address = f"10.96.0.{number}"
        spec: dict[str, Any] = {"clusterIP": address, "clusterIPs": [address], "ports": [{"name": "http", **port}]}
        if service in rivals:
            spec |= claim
        if service == "sticky":
            spec["sessionAffinity"] = "ClientIP"
        created = f"202{4 if service == older else 5}-01-01T00:00:00Z"
        metadata = {"namespace": "default", "name": service, "creationTimestamp": created}
        labels = {"kubernetes.io/service-name": service}
        items += [
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"namespace": "default", "name": service, "labels": labels},
                "addressType": "IPv4",
                "ports": [{"name": "http", "protocol": port["protocol"], "port": 8080}],
                "endpoints": [{"addresses": [f"10.244.{number}.5"], "nodeName": "node-2"}] if service in served else [],
            },
        ]
    path = folder / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def capture(folder: Path, path: str) -> str:
    """Write the rules of kube-proxy's mode nftables for the objects, as ``nft -j`` lists them."""
    options = KubeProxyOptions(CONFIG, nftables.Settings())
    snapshots = ObjectSnapshots(tuple(read_manifests((path,))), None)
    listed = [item for _, found in sync_inputs(snapshots, options) for item in nftables.list_table(found)]
    (folder / "nft.json").write_text(json.dumps({"nftables": listed}))
    return str(folder / "nft.json")


def differences(kube_proxy: str, manifests: str) -> tuple[int, set[str | None]]:
    """Return the exit status of ``knft diff``, and the reasons of differences, None for those without."""
    flags = ["--node", "node-1", "--cluster-cidr", "10.244.0.0/16", "--nodeport-addresses", "all", "-o", "json"]
    done = CliRunner().invoke(cli, ["diff", "-f", manifests, "--nft-json", kube_proxy, *flags], catch_exceptions=False)
    found = json.loads(done.stdout)["families"]
    groups = [group for family in found for kind in ("differences", "by_intent") for group in family[kind]]
    return done.exit_code, {group.get("reason") for group in groups}


EXPECTED = "contested frontend"


@pytest.mark.parametrize(
    ("rivals", "endpoint", "status", "reason"),
    [
        (CONTESTED, "10.244.1.5", 0, EXPECTED),
        (CONTESTED, "10.244.1.6", 1, None),
        (("rival",), "10.244.1.5", 1, None),
    ],
    ids=["expected", "another endpoint", "not contested"],
)
def test_only_the_owner_of_a_contested_frontend_is_expected_to_differ(
    tmp_path: Path, rivals: tuple[str, ...], endpoint: str, status: int, reason: str | None
) -> None:
    kube_proxy = capture(tmp_path, objects(tmp_path, "kube-proxy.json", "sticky"))
    rules = Path(kube_proxy).read_text().replace("10.244.1.5", endpoint)
    Path(kube_proxy).write_text(rules)
    found, reasons = differences(kube_proxy, objects(tmp_path, "knft.json", "rival", rivals))
    assert found == status
    assert reason in reasons


@pytest.mark.parametrize(
    "frontend",
    [
        {"port": {"port": 80, "protocol": "UDP"}},
        {"claim": {"type": "NodePort", "ports": [{"name": "http", **TCP_PORT, "nodePort": 30080}]}},
    ],
    ids=["UDP", "NodePort"],
)
def test_other_contested_frontends_are_expected_to_differ_too(tmp_path: Path, frontend: dict[str, Any]) -> None:
    kube_proxy = capture(tmp_path, objects(tmp_path, "kube-proxy.json", "sticky", **frontend))
    status, reasons = differences(kube_proxy, objects(tmp_path, "knft.json", "rival", **frontend))
    assert (status, EXPECTED in reasons) == (0, True)


def test_frontend_that_a_service_has_without_claiming_it_is_a_difference(tmp_path: Path) -> None:
    """Although kube-proxy has a chain of the owner, for another frontend."""
    path = Path(objects(tmp_path, "kube-proxy.json", "third", ("third",)))
    found = json.loads(path.read_text())
    (rival,) = (each for each in found["items"] if (each["kind"], each["metadata"]["name"]) == ("Service", "rival"))
    rival["spec"]["externalIPs"] = ["203.0.113.11"]
    path.write_text(json.dumps(found))
    status, reasons = differences(capture(tmp_path, str(path)), objects(tmp_path, "knft.json", "rival"))
    assert (status, EXPECTED in reasons) == (1, False)


def test_owner_without_endpoints_in_kube_proxy_s_rules_is_a_difference(tmp_path: Path) -> None:
    """Then kube-proxy has no chain for it."""
    kube_proxy = capture(tmp_path, objects(tmp_path, "kube-proxy.json", "sticky", served=("sticky", "third")))
    status, reasons = differences(kube_proxy, objects(tmp_path, "knft.json", "rival"))
    assert (status, EXPECTED in reasons) == (1, False)
