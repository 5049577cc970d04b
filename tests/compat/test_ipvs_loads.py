"""The real tools take what the IPVS mode prints: ipset, and both backends of iptables.

This kernel need not have ip_vs: rules that ask IPVS are left out here, and load in the virtual machine.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from knft.model.names import Family, Protocol
from knft_compat.cluster import Cluster, Node, ServedPort
from knft_compat.ipvs import Settings, Vintage, cleanup, read_addresses, sync
from knft_compat.page import Page
from tests.compat.ipvs_page import NODE, NODE6, bound, cluster, served
from tests.compat.loading import BACKENDS, MARK_DROP, filled_or_made, load, saved, without_ipvs
from tests.compat.saved import tables
from tests.compat.saved_sets import ipsets, listed
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


def rich(node: Node) -> Cluster:
    """Return a cluster that fills every set and has every rule."""
    ipv4 = node.family is Family.IPV4
    pod, ip = ("10.244.1.1", "10.96.0.1") if ipv4 else ("fd00:244::1", "fd00:96::1")
    outside, home = (("10.0.0.0/8", "198.51.100.7/32"), "192.0.2.0/24") if ipv4 else (("fd00::/8",), "2001:db8::/32")
    balanced: dict[str, Any] = {
        "ip": ip,
        "external_ips": ("198.51.100.1" if ipv4 else "2001:db8:1::1",),
        "load_balancer_vips": ("203.0.113.9" if ipv4 else "2001:db8:2::9",),
        "node_port": 30080,
    }
    local: dict[str, Any] = {"external_policy_local": True, "health_check_node_port": 31000}
    ports: list[ServedPort] = []
    protocols: tuple[Protocol, ...] = ("TCP", "UDP", "SCTP")
    for protocol in protocols:
        balanced["protocol"] = protocol
        ports += [
            served(f"L{pod}", load_balancer_source_ranges=outside, **local, **balanced),
            served(pod, name="shop/b:x", port=81, load_balancer_source_ranges=(home,), **balanced),
        ]
    return cluster(*ports, node=node, pods=None)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace.create("ipvs")
    try:
        yield made
    finally:
        made.close()


def _hand_over(namespace: Namespace, page: Page, name: str) -> None:
    (part,) = (part for part in page.parts if part.__struct_config__.tag == name)  # type: ignore[attr-defined]
    namespace.run(part.tool, stdin=page.part(name) or "")


def _saved_sets(namespace: Namespace) -> dict[str, tuple[str, set[str]]]:
    """Return the type and the members of every set."""
    found = ipsets(namespace.run(["ipset", "save"]).stdout)
    return {name: (item.type, item.entries) for name, item in found.items()}


@pytest.mark.parametrize("node", [NODE, NODE6], ids=["IPv4", "IPv6"])
def test_ipset_has_what_was_meant_and_takes_it_again(namespace: Namespace, node: Node) -> None:
    """Also after a sync that wants less than the one before."""
    full = rich(node)
    less = cluster(*full.ports[2:], before=full.ports, node=node, pods=None)
    for of in (full, full, less):
        page = sync(of, Settings())
        _hand_over(namespace, page, "ipset")
        (part,) = (part for part in page.parts if part.__struct_config__.tag == "ipset")  # type: ignore[attr-defined]
        meant = {item.name: (item.type, set(map(listed, item.entries))) for item in part.sets}  # type: ignore[attr-defined]
        assert _saved_sets(namespace) == meant
        if of is full:
            assert all(members for _, members in meant.values())


@pytest.mark.parametrize("vintage", Vintage)
@pytest.mark.parametrize("node", [NODE, NODE6], ids=["IPv4", "IPv6"])
def test_both_backends_of_iptables_load_the_rules_twice(namespace: Namespace, node: Node, vintage: Vintage) -> None:
    page = sync(rich(node), Settings(vintage=vintage))
    _hand_over(namespace, page, "ipset")
    text = without_ipvs(page.part("iptables-restore") or "")
    there = [MARK_DROP] if vintage is Vintage.V1_23 else []
    meant = filled_or_made(tables("".join((*there, text)), node.family))
    for backend in BACKENDS:
        for handed in (*there, text, text):
            load(namespace, handed, node.family, backend)
            found = saved(namespace, node.family, backend)
        assert filled_or_made(found) == meant


@pytest.mark.parametrize("node", [NODE, NODE6], ids=["IPv4", "IPv6"])
def test_addresses_are_bound_read_back_and_taken_away(namespace: Namespace, node: Node) -> None:
    """On a bridge of the device's name, where this kernel has no dummy devices."""
    namespace.run(["ip", "link", "add", "kube-ipvs0", "type", "bridge"])
    full, nothing = rich(node), cluster(node=node)
    _hand_over(namespace, sync(full, Settings()), "addresses")
    found = read_addresses("-", namespace.run(["ip", "address", "show"]).stdout)
    assert set(found) == set(bound(full))
    assert sync(full, Settings(bound=found)).part("addresses") == ""
    _hand_over(namespace, sync(nothing, Settings(bound=found)), "addresses-stale")
    assert read_addresses("-", namespace.run(["ip", "-oneline", "address", "show", "kube-ipvs0"]).stdout) == ()


def test_sysctls_are_read_by_sysctl(namespace: Namespace) -> None:
    page = sync(cluster(), Settings(strict_arp=True))
    lines = [line for line in (page.part("sysctls") or "").splitlines() if "/vs/" not in line]
    namespace.run(["sysctl", "-q", "-p", "-"], stdin="\n".join(lines))
    assert namespace.read_sysctl("net.ipv4.conf.all.arp_announce") == "2"


@pytest.mark.parametrize("vintage", Vintage)
@pytest.mark.parametrize("node", [NODE, NODE6], ids=["IPv4", "IPv6"])
def test_a_sync_twice_and_a_cleanup_leave_nothing_but_what_kube_proxy_leaves(
    namespace: Namespace, node: Node, vintage: Vintage
) -> None:
    """kube-proxy leaves the sets of IPv6, and chains that it takes for the kubelet's."""
    settings = Settings(vintage=vintage)
    page, after = sync(rich(node), settings), cleanup(rich(node), settings)
    for _ in range(2):
        for name in ("chains", "jumps", "ipset"):
            _hand_over(namespace, page, name)
    program = shutil.which("iptables-save" if node.family is Family.IPV4 else "ip6tables-save")
    assert program is not None
    jumps = namespace.run([program]).stdout.count("--comment")
    assert jumps == {Vintage.V1_23: 5, Vintage.V1_26: 8}.get(vintage, 9)
    for name in ("jumps-removed", "chains-removed", "ipset-destroyed"):
        _hand_over(namespace, after, name)
    left = {line.split()[0][1:] for line in namespace.run([program]).stdout.splitlines() if line.startswith(":KUBE-")}
    assert left == {Vintage.V1_23: {"KUBE-MARK-MASQ", "KUBE-MARK-DROP"}, Vintage.V1_26: {"KUBE-MARK-MASQ"}}.get(
        vintage, set()
    )
    assert bool(_saved_sets(namespace)) is (node.family is Family.IPV6)
