"""``knft cleanup --kube-proxy ipvs`` removes kube-proxy's virtual servers and its device.

It needs a kernel with ip_vs and the right to load modules, so it runs in the virtual machine only.
"""

from pathlib import Path

import pytest
from pyroute2 import IPVS, IPRoute, IPVSDest, IPVSService  # type: ignore[import-untyped]

from tests.support.knft_command import NODE_FLAG, knft
from tests.support.lab.namespace import Namespace
from tests.support.leftovers import FAMILIES, IPV4, IPV6
from tests.support.old_node import OldNode

pytestmark = pytest.mark.kernel
TCP, UDP = 6, 17
FOREIGN_ADDRESSES = ("198.51.100.7", "2001:db8:7::7")


@pytest.fixture
def served(old_node: OldNode) -> OldNode:
    """A node with kube-proxy's device and virtual servers in both families, and another program's virtual servers."""
    namespace = old_node.namespace
    namespace.run(["modprobe", "-a", "ip_vs", "ip_vs_rr", "dummy"])
    with namespace.entered(), IPRoute() as route:
        route.link("add", ifname="kube-ipvs0", kind="dummy")
        (device,) = route.link_lookup(ifname="kube-ipvs0")
        route.link("add", ifname="eth0", kind="dummy", state="up")
        (card,) = route.link_lookup(ifname="eth0")
        route.addr("add", index=device, address=IPV4.cluster_ip, prefixlen=32)
        route.addr("add", index=device, address=IPV6.cluster_ip, prefixlen=128)
        route.addr("add", index=card, address="192.0.2.11", prefixlen=24)
    old_node.add_foreign_rules()
    old_node.add_ipvs_mode("nft", "legacy")
    for family in FAMILIES:
        _serve(namespace, family.cluster_ip, 80, TCP, family.endpoints[0])
        _serve(namespace, family.cluster_ip, 53, UDP, family.endpoints[0])
        _serve(namespace, family.load_balancer_ip, 80, TCP, family.endpoints[1])
    _serve(namespace, "192.0.2.11", 30080, TCP, IPV4.endpoints[0])
    for address in FOREIGN_ADDRESSES:
        _serve(namespace, address, 30080, TCP, address)
    return old_node


def _serve(namespace: Namespace, address: str, port: int, protocol: int, server: str) -> None:
    with namespace.entered(), IPVS() as ipvs:
        # For IPv6 the kernel reads a prefix length, 128, where pyroute2 writes a netmask.
        netmask = {} if "." in address else {"netmask": "128.0.0.0"}
        service = IPVSService(addr=address, port=port, protocol=protocol, sched_name="rr", **netmask)
        ipvs.service("add", service=service)
        ipvs.dest("add", service=service, dest=IPVSDest(addr=server, port=8080))


def _servers(namespace: Namespace) -> list[str]:
    text = namespace.run(["cat", "/proc/net/ip_vs"]).stdout
    return sorted(line.split()[1] for line in text.splitlines()[3:] if not line.startswith("  ->"))


def test_kube_proxys_virtual_servers_and_device_are_removed_and_others_stay(served: OldNode, tmp_path: Path) -> None:
    namespace = served.namespace
    assert len(_servers(namespace)) == 9
    (warned,) = [line for line in _log(served, tmp_path) if "IPVS" in line]
    assert "34 ipsets, 7 virtual servers, the device kube-ipvs0)" in warned

    said = served.cleanup("ipvs")
    assert "virtual servers: 7 removed\n" in said
    assert (
        "virtual servers: 2 kept, not known to be kube-proxy's: "
        "tcp 198.51.100.7:30080, tcp [2001:db8:7::7]:30080" in said
    )
    assert "device kube-ipvs0: removed\n" in said
    assert "ipsets: 34 removed\n" in said
    assert len(_servers(namespace)) == 2
    assert "kube-ipvs0" not in namespace.run(["cat", "/proc/net/dev"]).stdout

    again = served.cleanup("ipvs")
    assert "virtual servers: nothing found\n" in again
    assert "device kube-ipvs0: not found\n" in again
    assert "ipsets: nothing found\n" in again
    assert len(_servers(namespace)) == 2


def _log(node: OldNode, folder: Path) -> list[str]:
    return knft(node.namespace, "run", "--once", "--manifests", str(folder), *NODE_FLAG).stderr.splitlines()
