"""The texts that are written for the programs of a cluster."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from deploy.cluster import network, node_files, objects
from deploy.cluster.control_plane import API_SERVER, COMPONENTS, component_flags
from deploy.cluster.keys import Keys, kubeconfig
from deploy.cluster.packages import Unpacked
from deploy.cluster.plan import Families, Proxy, make_plan

_KEYS = Keys("keys", Path("/keys"))
_PACKAGES = Unpacked(Path("/packages"), Path("/packages/lib"))


def test_nodes_are_connected_and_reach_the_pods_of_others() -> None:
    plan = make_plan(2)
    assert network.control_plane_lines(plan) == [
        "link set lo up",
        "link add br0 type bridge",
        "address add 192.168.100.1/24 dev br0",
        "address add fd00:192:168:100::1/64 dev br0 nodad",
        "link set br0 up",
    ]
    assert network.port_lines(plan.nodes[0], 42) == [
        "link add node1 type veth peer name eth0 address 02:00:c0:a8:64:0b netns 42",
        "link set node1 master br0 up",
        "route replace 10.244.1.0/24 via 192.168.100.11",
        "route replace fd00:10:244:1::/64 via fd00:192:168:100::11",
    ]
    assert network.node_lines(plan, plan.nodes[0])[3:] == [
        "link set eth0 up",
        "route replace 0.0.0.0/0 via 192.168.100.1",
        "route replace ::/0 via fd00:192:168:100::1",
        "route replace 10.244.2.0/24 via 192.168.100.12",
        "route replace fd00:10:244:2::/64 via fd00:192:168:100::12",
    ]


@pytest.mark.parametrize(("families", "address"), [(Families.DUAL, "0.0.0.0"), (Families.IPV6, "::")])  # noqa: S104
def test_api_server_listens_in_the_primary_family(families: Families, address: str) -> None:
    flags = component_flags(_KEYS, make_plan(families=families), Path("/etcd"))
    assert set(flags) == set(COMPONENTS)
    assert f"--bind-address={address}" in flags[API_SERVER]


def test_dual_stack_api_server_has_both_service_cidrs() -> None:
    flags = component_flags(_KEYS, make_plan(), Path("/etcd"))
    assert "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112" in flags[API_SERVER]


def test_files_of_a_node_are_valid() -> None:
    plan = make_plan()
    files = node_files.node_files(plan, plan.nodes[0], _KEYS, _PACKAGES, Path("/plugins"))
    assert json.loads(files["kubelet.yaml"])["clusterDNS"] == ["10.96.0.10", "fd00:10:96::10"]
    containerd = tomllib.loads(files["containerd.toml"])["plugins"]["io.containerd.grpc.v1.cri"]
    assert containerd["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/packages/usr/sbin/runc"
    assert containerd["cni"]["bin_dir"] == "/plugins"
    ranges = json.loads(files["cni.conflist"])["plugins"][0]["ipam"]["ranges"]
    assert ranges == [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:10:244:1::/64"}]]


def test_each_sysctl_of_the_kubelet_has_a_file() -> None:
    plan = make_plan()
    files = node_files.node_files(plan, plan.nodes[0], _KEYS, _PACKAGES, Path("/plugins"))
    binds = node_files.sysctl_binds(Path("/files"))
    assert binds["/proc/sys/vm/overcommit_memory"] == "/files/sysctl-vm-overcommit_memory"
    assert {Path(path).name for path in binds.values()} <= set(files)


def test_only_nodes_with_knft_have_its_label() -> None:
    knft, other = make_plan(2, proxies=(Proxy.KNFT, Proxy.NONE)).nodes
    assert objects.node_object(knft)["metadata"]["labels"]["knft.dev/proxy"] == "knft"
    assert "knft.dev/proxy" not in objects.node_object(other)["metadata"]["labels"]
    assert objects.node_object(other)["spec"]["podCIDRs"] == ["10.244.2.0/24", "fd00:10:244:2::/64"]


def test_coredns_has_the_addresses_that_kubelets_give_to_pods() -> None:
    plan = make_plan()
    items = {item["kind"]: item for item in objects.coredns_objects(plan)}
    assert tuple(items["Service"]["spec"]["clusterIPs"]) == plan.dns_addresses
    (container,) = items["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "KUBERNETES_SERVICE_HOST": "192.168.100.1",
        "KUBERNETES_SERVICE_PORT": "6443",
    }


def test_knft_gets_the_image_and_the_address_of_the_api_server() -> None:
    found = objects.knft_kustomization(make_plan(), "base", "1.2.3")
    assert found["images"] == [{"name": "knft.dev/knft", "newTag": "1.2.3"}]
    assert found["configMapGenerator"][0]["literals"] == ["api-server-host=192.168.100.1", "api-server-port=6443"]
    (patch,) = yaml.safe_load(found["patches"][0]["patch"])
    assert patch["path"] == "/spec/template/spec/nodeSelector/knft.dev~1proxy"
    assert objects.knft_configuration(make_plan())["clusterCIDR"] == "10.244.0.0/16,fd00:10:244::/56"


def test_kubeconfig_contains_its_certificates() -> None:
    found = kubeconfig("admin", "https://127.0.0.1:7000", b"ca", b"crt", b"key")
    assert found["users"][0]["user"] == {"client-certificate-data": "Y3J0", "client-key-data": "a2V5"}
    assert found["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:7000",
        "certificate-authority-data": "Y2E=",
    }
