"""Tests of jumps to NodePorts, and of NodePorts on loopback addresses, with all forms of the flags."""

import pytest

from tests.compat.iptables_render import chains, endpoints, render, restore_input, rules, service
from tests.support.kube_objects import parametrize_cases

JUMP_COMMENT = '-m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain"'
NODE = ("--node-ip", "192.0.2.11,2001:db8:1::11", "--local-address", "198.51.100.7,192.0.2.200")
OBJECTS = [service(port={"nodePort": 30080}), endpoints("ns1/svc1", "10.180.0.1")]
WITHOUT_LOCALHOST = "--no-iptables-localhost-nodeports"


def jumps(*flags: str) -> list[str]:
    """Return the conditions of the jumps to KUBE-NODEPORTS, without the common comment and target."""
    service_rules = rules(restore_input(OBJECTS, *NODE, *flags), "KUBE-SERVICES")
    jump_rules = [line for line in service_rules if line.endswith(" -j KUBE-NODEPORTS")]
    assert service_rules[len(service_rules) - len(jump_rules) :] == jump_rules
    return [line.removeprefix(f"{JUMP_COMMENT} ").removesuffix(" -j KUBE-NODEPORTS") for line in jump_rules]


ANY_LOCAL_ADDRESS = "-m addrtype --dst-type LOCAL"
JUMP_CONDITIONS = {
    "default": ([], [ANY_LOCAL_ADDRESS]),
    "default, localhost NodePorts off": ([WITHOUT_LOCALHOST], [f"{ANY_LOCAL_ADDRESS} ! -d 127.0.0.0/8"]),
    "all": (["--nodeport-addresses", "all"], [ANY_LOCAL_ADDRESS]),
    "zero network": (["--nodeport-addresses", "0.0.0.0/0"], [ANY_LOCAL_ADDRESS]),
    "zero network with another network": (["--nodeport-addresses", "192.0.2.0/24,0.0.0.0/0"], [ANY_LOCAL_ADDRESS]),
    "only the other family": (["--nodeport-addresses", "2001:db8::/32"], [ANY_LOCAL_ADDRESS]),
    "primary": (["--nodeport-addresses", "primary"], ["-d 192.0.2.11"]),
    "localhost": (["--nodeport-addresses", "localhost"], ["-d 127.0.0.1"]),
    "localhost, localhost NodePorts off": (["--nodeport-addresses", "localhost", WITHOUT_LOCALHOST], []),
    "primary and localhost": (["--nodeport-addresses", "primary,localhost"], ["-d 127.0.0.1", "-d 192.0.2.11"]),
    "network": (["--nodeport-addresses", "192.0.2.0/24"], ["-d 192.0.2.11", "-d 192.0.2.200"]),
    "two networks that overlap": (
        ["--nodeport-addresses", "192.0.2.200/32", "--nodeport-addresses", "192.0.2.0/24,198.51.100.0/24"],
        ["-d 192.0.2.11", "-d 192.0.2.200", "-d 198.51.100.7"],
    ),
    "loopback address": (["--nodeport-addresses", "127.0.0.1/32"], ["-d 127.0.0.1"]),
    "network that contains loopback": (["--nodeport-addresses", "96.0.0.0/3"], ["-d 127.0.0.1"]),
    "loopback network without 127.0.0.1": (["--nodeport-addresses", "127.1.0.0/16"], []),
    "network without local addresses": (["--nodeport-addresses", "203.0.113.0/24"], []),
    "link-local address": (
        ["--nodeport-addresses", "169.254.0.0/16", "--local-address", "169.254.20.10"],
        ["-d 169.254.20.10"],
    ),
    "ipv6, link-local address": (
        ["--family", "ipv6", "--nodeport-addresses", "fe80::/10", "--local-address", "fe80::1"],
        ["-d fe80::1"],
    ),
    "ipv6, default": (["--family", "ipv6"], [f"{ANY_LOCAL_ADDRESS} ! -d ::1/128"]),
    "ipv6, all": (["--family", "ipv6", "--nodeport-addresses", "all"], [f"{ANY_LOCAL_ADDRESS} ! -d ::1/128"]),
    "ipv6, localhost": (["--family", "ipv6", "--nodeport-addresses", "localhost"], []),
    "ipv6, primary": (["--family", "ipv6", "--nodeport-addresses", "primary"], ["-d 2001:db8:1::11"]),
    "ipv6, network": (["--family", "ipv6", "--nodeport-addresses", "2001:db8::/32"], ["-d 2001:db8:1::11"]),
}


@parametrize_cases(JUMP_CONDITIONS)
def test_nodeport_addresses_determine_the_jump_conditions(case: tuple[list[str], list[str]]) -> None:
    flags, expected = case
    assert jumps(*flags) == expected


LOOPBACK = {
    "default": ([], True),
    "disabled": ([WITHOUT_LOCALHOST], False),
    "all": (["--nodeport-addresses", "all"], True),
    "localhost": (["--nodeport-addresses", "localhost"], True),
    "part of loopback": (["--nodeport-addresses", "192.0.2.0/24,127.1.0.0/16"], True),
    "network that contains loopback": (["--nodeport-addresses", "96.0.0.0/3"], True),
    "primary": (["--nodeport-addresses", "primary"], False),
    "network without loopback": (["--nodeport-addresses", "192.0.2.0/24"], False),
    "only the other family": (["--nodeport-addresses", "::1/128"], True),
    "ipv6": (["--family", "ipv6", "--nodeport-addresses", "localhost"], False),
}


@parametrize_cases(LOOPBACK)
def test_localhost_node_ports_need_sysctl_and_localnet_rule(case: tuple[list[str], bool]) -> None:
    """They need the sysctl route_localnet and the rule that drops packets from other hosts; a counter counts them."""
    flags, expected = case
    text = restore_input(OBJECTS, *NODE, *flags)
    assert (render(OBJECTS, *NODE, *flags, "--part", "sysctls") != "") is expected
    assert ("KUBE-FIREWALL" in chains(text, "filter")) is expected
    assert len(rules(text, "KUBE-FIREWALL", "filter")) == expected
    assert sum("-d 127.0.0.0/8" in line for line in rules(text, "KUBE-NODEPORTS")) == expected


def test_localhost_counter_needs_nfacct() -> None:
    assert not any("127.0.0.0/8" in line for line in rules(restore_input(OBJECTS, "--no-nfacct"), "KUBE-NODEPORTS"))


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_primary_without_an_address_of_the_family_accepts_all(family: str) -> None:
    """No network of the family remains, so all addresses accept NodePorts, as in kube-proxy."""
    lines = rules(restore_input([], "--family", family, "--nodeport-addresses", "primary"), "KUBE-SERVICES")
    assert [ANY_LOCAL_ADDRESS in line for line in lines] == [True]


def test_node_external_ip_is_not_an_interface_address() -> None:
    addresses = [{"type": "ExternalIP", "address": "203.0.113.5"}, {"type": "InternalIP", "address": "203.0.113.6"}]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": {"addresses": addresses}}
    lines = rules(restore_input([node], "--nodeport-addresses", "203.0.113.0/24"), "KUBE-SERVICES")
    assert lines == [f"{JUMP_COMMENT} -d 203.0.113.6 -j KUBE-NODEPORTS"]


def test_node_ports_jump_only_for_loopback_if_no_address_is_known() -> None:
    for networks, expected in (
        ("192.0.2.0/24", []),
        ("192.0.2.0/24,localhost", [f"{JUMP_COMMENT} -d 127.0.0.1 -j KUBE-NODEPORTS"]),
    ):
        assert rules(restore_input([], "--nodeport-addresses", networks), "KUBE-SERVICES") == expected
