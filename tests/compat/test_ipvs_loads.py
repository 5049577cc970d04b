"""Tests that ipset and both iptables backends load the output of the IPVS mode.

Rules with ipvs matches are omitted, since the kernel may lack ip_vs; the virtual machine loads them.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from knft.families import Family
from knft.protocols import Protocol
from knft_compat.ipvs import RuleVersion, Settings, cleanup, read_addresses, sync
from knft_compat.sync_input import Node, PlannedPort, SyncInput
from knft_compat.sync_output import SyncOutput
from tests.compat.ipvs_render import NODE, NODE6, addresses_to_bind, service_port, sync_input
from tests.compat.parsed_sets import normalized_entry, parse_ipsets
from tests.support.iptables_programs import (
    BACKENDS,
    MARK_DROP,
    load,
    saved_tables,
    without_empty_built_in_chains,
    without_ipvs_matches,
)
from tests.support.lab.namespace import Namespace
from tests.support.parsed_rules import parse_tables

pytestmark = pytest.mark.kernel


def full_cluster(node: Node) -> SyncInput:
    """Return a cluster that causes entries in every set, and every rule."""
    ipv4 = node.family is Family.IPV4
    pod, ip = ("10.244.1.1", "10.96.0.1") if ipv4 else ("fd00:244::1", "fd00:96::1")
    outside_ranges, node_range = (
        (("10.0.0.0/8", "198.51.100.7/32"), "192.0.2.0/24") if ipv4 else (("fd00::/8",), "2001:db8::/32")
    )
    load_balancer: dict[str, Any] = {
        "ip": ip,
        "external_ips": ("198.51.100.1" if ipv4 else "2001:db8:1::1",),
        "load_balancer_vips": ("203.0.113.9" if ipv4 else "2001:db8:2::9",),
        "node_port": 30080,
    }
    local: dict[str, Any] = {"external_policy_local": True, "health_check_node_port": 31000}
    ports: list[PlannedPort] = []
    protocols: tuple[Protocol, ...] = ("TCP", "UDP", "SCTP")
    for protocol in protocols:
        load_balancer["protocol"] = protocol
        ports += [
            service_port(f"L{pod}", load_balancer_source_ranges=outside_ranges, **local, **load_balancer),
            service_port(pod, name="shop/b:x", port=81, load_balancer_source_ranges=(node_range,), **load_balancer),
        ]
    return sync_input(*ports, node=node, pods=None)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    namespace = Namespace.create("ipvs")
    try:
        yield namespace
    finally:
        namespace.close()


def _run_part(namespace: Namespace, output: SyncOutput, name: str) -> None:
    (part,) = (part for part in output.parts if part.__struct_config__.tag == name)  # type: ignore[attr-defined]
    namespace.run(part.tool, stdin=output.part_text(name) or "")


def _saved_sets(namespace: Namespace) -> dict[str, tuple[str, set[str]]]:
    """Return the type and the members of every set."""
    sets = parse_ipsets(namespace.run(["ipset", "save"]).stdout)
    return {name: (item.type, item.entries) for name, item in sets.items()}


@pytest.mark.parametrize("node", [NODE, NODE6], ids=["IPv4", "IPv6"])
def test_ipset_restores_sets_twice(namespace: Namespace, node: Node) -> None:
    """A sync with fewer entries than the previous one loads too."""
    full = full_cluster(node)
    smaller = sync_input(*full.ports[2:], before=full.ports, node=node, pods=None)
    for cluster in (full, full, smaller):
        output = sync(cluster, Settings())
        _run_part(namespace, output, "ipset")
        (part,) = (part for part in output.parts if part.__struct_config__.tag == "ipset")  # type: ignore[attr-defined]
        expected = {item.name: (item.type, set(map(normalized_entry, item.entries))) for item in part.sets}  # type: ignore[attr-defined]
        assert _saved_sets(namespace) == expected
        if cluster is full:
            assert all(members for _, members in expected.values())


@pytest.mark.parametrize("rule_version", RuleVersion)
@pytest.mark.parametrize("node", [NODE, NODE6], ids=["IPv4", "IPv6"])
def test_both_iptables_backends_load_the_rules_twice(
    namespace: Namespace, node: Node, rule_version: RuleVersion
) -> None:
    output = sync(full_cluster(node), Settings(rule_version=rule_version))
    _run_part(namespace, output, "ipset")
    text = without_ipvs_matches(output.part_text("iptables-restore") or "")
    first_inputs = [MARK_DROP] if rule_version is RuleVersion.DOCUMENT_003 else []
    expected = without_empty_built_in_chains(parse_tables("".join((*first_inputs, text)), node.family))
    for backend in BACKENDS:
        for restored in (*first_inputs, text, text):
            load(namespace, restored, node.family, backend)
            saved = saved_tables(namespace, node.family, backend)
        assert without_empty_built_in_chains(saved) == expected


@pytest.mark.parametrize("node", [NODE, NODE6], ids=["IPv4", "IPv6"])
def test_addresses_are_bound_read_back_and_removed(namespace: Namespace, node: Node) -> None:
    """A bridge replaces the dummy device, which not every kernel supports."""
    namespace.run(["ip", "link", "add", "kube-ipvs0", "type", "bridge"])
    full, empty = full_cluster(node), sync_input(node=node)
    _run_part(namespace, sync(full, Settings()), "addresses")
    bound = read_addresses("-", namespace.run(["ip", "address", "show"]).stdout)
    assert set(bound) == set(addresses_to_bind(full))
    assert sync(full, Settings(existing_addresses=bound)).part_text("addresses") == ""
    _run_part(namespace, sync(empty, Settings(existing_addresses=bound)), "addresses-stale")
    assert read_addresses("-", namespace.run(["ip", "-oneline", "address", "show", "kube-ipvs0"]).stdout) == ()


def test_sysctl_accepts_the_settings(namespace: Namespace) -> None:
    output = sync(sync_input(), Settings(strict_arp=True))
    lines = [line for line in (output.part_text("sysctls") or "").splitlines() if "/vs/" not in line]
    namespace.run(["sysctl", "-q", "-p", "-"], stdin="\n".join(lines))
    assert namespace.read_sysctl("net.ipv4.conf.all.arp_announce") == "2"


@pytest.mark.parametrize("rule_version", RuleVersion)
@pytest.mark.parametrize("node", [NODE, NODE6], ids=["IPv4", "IPv6"])
def test_cleanup_leaves_only_ipv6_sets_and_kubelet_chains(
    namespace: Namespace, node: Node, rule_version: RuleVersion
) -> None:
    """kube-proxy keeps the IPv6 sets, and chains that the kubelet may use."""
    settings = Settings(rule_version=rule_version)
    output, after = sync(full_cluster(node), settings), cleanup(full_cluster(node), settings)
    for _ in range(2):
        for name in ("chains", "jumps", "ipset"):
            _run_part(namespace, output, name)
    program = shutil.which("iptables-save" if node.family is Family.IPV4 else "ip6tables-save")
    assert program is not None
    jumps = namespace.run([program]).stdout.count("--comment")
    assert jumps == {RuleVersion.DOCUMENT_003: 5, RuleVersion.DOCUMENT_002: 8}.get(rule_version, 9)
    for name in ("jumps-removed", "chains-removed", "ipset-destroyed"):
        _run_part(namespace, after, name)
    left = {line.split()[0][1:] for line in namespace.run([program]).stdout.splitlines() if line.startswith(":KUBE-")}
    assert left == {
        RuleVersion.DOCUMENT_003: {"KUBE-MARK-MASQ", "KUBE-MARK-DROP"},
        RuleVersion.DOCUMENT_002: {"KUBE-MARK-MASQ"},
    }.get(rule_version, set())
    assert bool(_saved_sets(namespace)) is (node.family is Family.IPV6)
