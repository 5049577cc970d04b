"""Tests of the deletion of conntrack entries by version (docs/behaviour/conntrack.md#event-driven)."""

from typing import Any

from knft_compat.ipvs import RuleVersion
from knft_compat.sync_input import SyncInput
from tests.compat.ipvs_render import NODE6, part_lines, service_port, sync_input

FRONTENDS: dict[str, Any] = {
    "external_ips": ("198.51.100.1",),
    "load_balancer_vips": ("203.0.113.9",),
    "node_port": 30053,
}
NEVER_FAILS = " || true"
ADDRESSES = ("10.96.0.1", "198.51.100.1", "203.0.113.9")


def conntrack_commands(cluster: SyncInput, rule_version: RuleVersion = RuleVersion.DOCUMENT_004) -> list[str]:
    """Return the commands."""
    text = part_lines(cluster, "conntrack", rule_version=rule_version)
    # conntrack fails if no entry matches, which kube-proxy ignores.
    assert all(line.endswith(NEVER_FAILS) for line in text)
    return [line.removesuffix(NEVER_FAILS) for line in text]


def test_entries_of_a_deleted_services_cluster_ip_are_deleted() -> None:
    cluster = sync_input(before=[service_port(protocol="UDP", **FRONTENDS)])
    for rule_version in (RuleVersion.DOCUMENT_004, RuleVersion.DOCUMENT_002, RuleVersion.DOCUMENT_003):
        assert conntrack_commands(cluster, rule_version) == ["conntrack -D --orig-dst 10.96.0.1 -p udp"]


def test_first_endpoint_deletes_entries_of_every_frontend() -> None:
    before, after = service_port(protocol="UDP", **FRONTENDS), service_port("10.244.1.1", protocol="UDP", **FRONTENDS)
    by_address = [f"conntrack -D --orig-dst {address} -p udp" for address in ADDRESSES]
    by_port = ["conntrack -D -p udp --dport 30053"]
    assert conntrack_commands(sync_input(after, before=[before])) == [*by_address, *by_port]
    assert conntrack_commands(sync_input(after, before=[])) == [*by_address, *by_port]
    assert conntrack_commands(sync_input(after, before=[before]), RuleVersion.DOCUMENT_002) == [*by_port, *by_address]


def test_entries_of_an_endpoint_that_stops_serving_are_deleted() -> None:
    before = service_port("10.244.1.1", "10.244.1.2", protocol="UDP", **FRONTENDS)
    by_address = [f"conntrack -D --orig-dst {address} --dst-nat 10.244.1.2 -p udp" for address in ADDRESSES]
    for left in ((), ("N10.244.1.2",)):
        cluster = sync_input(service_port("10.244.1.1", *left, protocol="UDP", **FRONTENDS), before=[before])
        assert conntrack_commands(cluster) == [*by_address, "conntrack -D -p udp --dport 30053 --dst-nat 10.244.1.2"]
        assert conntrack_commands(cluster, RuleVersion.DOCUMENT_002) == [
            "conntrack -D -p udp --dport 30053",
            *by_address,
        ]


def test_endpoint_that_never_served_needs_no_deletion() -> None:
    before = service_port("10.244.1.1", "N10.244.1.2", protocol="UDP")
    for left in ((), ("N10.244.1.2",)):
        cluster = sync_input(service_port("10.244.1.1", *left, protocol="UDP"), before=[before])
        assert conntrack_commands(cluster) == []


def test_terminating_endpoint_still_serves() -> None:
    cluster = sync_input(
        service_port("T10.244.1.1", protocol="UDP"), before=[service_port("10.244.1.1", protocol="UDP")]
    )
    assert conntrack_commands(cluster) == []


def test_up_to_1_26_every_sync_deletes_entries_of_udp_node_ports() -> None:
    ports = (service_port(protocol="UDP", node_port=30053), service_port(node_port=30080))
    for rule_version in (RuleVersion.DOCUMENT_002, RuleVersion.DOCUMENT_003):
        assert conntrack_commands(sync_input(*ports), rule_version) == ["conntrack -D -p udp --dport 30053"]
    assert conntrack_commands(sync_input(*ports)) == []


def test_ipv6_commands_end_with_the_family() -> None:
    before = service_port("fd00:244::1", ip="fd00:96::1", protocol="UDP")
    assert conntrack_commands(
        sync_input(service_port(ip="fd00:96::1", protocol="UDP"), before=[before], node=NODE6)
    ) == ["conntrack -D --orig-dst fd00:96::1 --dst-nat fd00:244::1 -p udp -f ipv6"]


def test_tcp_and_sctp_entries_are_never_deleted() -> None:
    for protocol in ("TCP", "SCTP"):
        before = service_port("10.244.1.1", protocol=protocol, **FRONTENDS)
        assert conntrack_commands(sync_input(before=[before])) == []


def test_first_sync_treats_every_endpoint_as_new() -> None:
    ports = (
        service_port("10.244.1.1", protocol="UDP", **FRONTENDS),
        service_port("T10.244.1.2", name="shop/dns:", protocol="UDP"),
    )
    by_address = [f"conntrack -D --orig-dst {address} -p udp" for address in ADDRESSES]
    by_port = ["conntrack -D -p udp --dport 30053"]
    assert conntrack_commands(sync_input(*ports)) == [*by_address, *by_port]
    assert conntrack_commands(sync_input(*ports), RuleVersion.DOCUMENT_002) == [*by_port, *by_address]


def test_newest_version_has_no_deletions() -> None:
    after = service_port("10.244.1.1", protocol="UDP", node_port=30053)
    for before in (None, ()):
        assert conntrack_commands(sync_input(after, before=before), RuleVersion.NEWEST) == []
