"""Parsing of flags, and the messages for invalid values."""

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from msgspec import structs

from knft.config import (
    Config,
    parse_cluster_cidrs,
    parse_networks,
    parse_nodeport_addresses,
    parse_one_address_per_family,
)
from knft.durations import parse_seconds
from knft.errors import UsageError
from knft.families import Family
from tests.support.kube_objects import parametrize_cases

Parser = Callable[[str, tuple[str, ...]], tuple[str, ...]]

DURATIONS = {
    "0": 0.0,
    "0s": 0.0,
    "1s": 1.0,
    "30s": 30.0,
    "1m30s": 90.0,
    "1h": 3600.0,
    "1h2m3s": 3723.0,
    "2m": 120.0,
    "500ms": 0.5,
    "1.5s": 1.5,
    ".5s": 0.5,
    "1.s": 1.0,
    "250us": 0.00025,
    "250\N{MICRO SIGN}s": 0.00025,
    "100ns": 1e-7,
    "1m500ms": 60.5,
}


@pytest.mark.parametrize(("text", "expected"), DURATIONS.items())
def test_durations_are_parsed_as_in_go(text: str, expected: float) -> None:
    assert pytest.approx(expected) == parse_seconds("--sync-period", text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1",
        "10",
        "s",
        "1 s",
        " 1s",
        "1s ",
        "-1s",
        "1d",
        "1S",
        "1s2",
        "1m 30s",
        ".s",
        "1..5s",
        "one",
        "1e3s",
        "inf",
    ],
)
def test_invalid_duration_error_names_flag_and_text(text: str) -> None:
    expected = f"--sync-period: {text!r} is not a duration; write it as in 1s, 500ms or 1m30s"
    with pytest.raises(UsageError) as raised:
        parse_seconds("--sync-period", text)
    assert expected == str(raised.value)


class ValidCase(NamedTuple):
    """A parser, the values of a flag, and the parsed result."""

    parse: Parser
    given: tuple[str, ...]
    expected: tuple[str, ...]


VALID = {
    "no address": ValidCase(parse_one_address_per_family, (), ()),
    "empty address": ValidCase(parse_one_address_per_family, ("",), ()),
    "IPv4 address": ValidCase(parse_one_address_per_family, ("192.0.2.1",), ("192.0.2.1",)),
    "one address of each family": ValidCase(
        parse_one_address_per_family, ("192.0.2.1,fd00::1",), ("192.0.2.1", "fd00::1")
    ),
    "order is kept": ValidCase(parse_one_address_per_family, ("fd00::1,192.0.2.1",), ("fd00::1", "192.0.2.1")),
    "repeated flag": ValidCase(parse_one_address_per_family, ("192.0.2.1", "fd00::1"), ("192.0.2.1", "fd00::1")),
    "blanks and empty parts": ValidCase(
        parse_one_address_per_family, (" 192.0.2.1 ,, fd00::1,",), ("192.0.2.1", "fd00::1")
    ),
    "duplicate address": ValidCase(parse_one_address_per_family, ("192.0.2.1,192.0.2.001",), ("192.0.2.1",)),
    "IPv6 address is shortened": ValidCase(parse_one_address_per_family, ("FD00:0::0001",), ("fd00::1",)),
    "no cluster CIDR": ValidCase(parse_cluster_cidrs, (), ()),
    "one cluster CIDR of each family": ValidCase(
        parse_cluster_cidrs, ("10.244.0.0/16,fd00:10:244::/48",), ("10.244.0.0/16", "fd00:10:244::/48")
    ),
    "host bits are cleared": ValidCase(parse_cluster_cidrs, ("10.244.3.4/16",), ("10.244.0.0/16",)),
    "duplicate cluster CIDR": ValidCase(parse_cluster_cidrs, ("10.244.0.0/16", "10.244.1.0/16"), ("10.244.0.0/16",)),
    "no network": ValidCase(parse_networks, (), ()),
    "several networks of one family": ValidCase(
        parse_networks,
        ("10.96.0.0/16,10.97.0.0/16", "fd00:96::/112"),
        ("10.96.0.0/16", "10.97.0.0/16", "fd00:96::/112"),
    ),
    "no value means primary": ValidCase(parse_nodeport_addresses, (), ("primary",)),
    "empty value means primary": ValidCase(parse_nodeport_addresses, ("", " , "), ("primary",)),
    "primary": ValidCase(parse_nodeport_addresses, ("primary",), ("primary",)),
    "all": ValidCase(parse_nodeport_addresses, ("all",), ("all",)),
    "NodePort CIDRs": ValidCase(parse_nodeport_addresses, ("192.0.2.7/24,fd00::/64",), ("192.0.2.0/24", "fd00::/64")),
    "primary and a CIDR": ValidCase(parse_nodeport_addresses, ("primary,192.0.2.0/24",), ("primary", "192.0.2.0/24")),
}


@parametrize_cases(VALID)
def test_lists_are_canonical_and_keep_their_order(case: ValidCase) -> None:
    assert case.expected == case.parse("--flag", case.given)


class InvalidCase(NamedTuple):
    """A parser, the values of a flag, and the error message."""

    parse: Parser
    given: tuple[str, ...]
    message: str


LOCALHOST = (
    "NodePorts are served on loopback addresses only with the feature gate KubeProxyNFTablesLocalhostNodePorts; set it"
)
INVALID = {
    "name instead of an address": InvalidCase(
        parse_one_address_per_family, ("node-1",), "'node-1' is not an IP address"
    ),
    "CIDR instead of an address": InvalidCase(
        parse_one_address_per_family, ("192.0.2.0/24",), "'192.0.2.0/24' is not an IP address"
    ),
    "octet above 255": InvalidCase(
        parse_one_address_per_family, ("192.0.2.256",), "'192.0.2.256' is not an IP address"
    ),
    "IPv6 zone": InvalidCase(parse_one_address_per_family, ("fe80::1%eth0",), "'fe80::1%eth0' is not an IP address"),
    "invalid address after a valid one": InvalidCase(
        parse_one_address_per_family, ("192.0.2.1,x",), "'x' is not an IP address"
    ),
    "two IPv4 addresses": InvalidCase(
        parse_one_address_per_family,
        ("192.0.2.1,fd00::1", "192.0.2.2"),
        "two IPv4 values, 192.0.2.1 and 192.0.2.2; give at most one per family",
    ),
    "two IPv6 addresses": InvalidCase(
        parse_one_address_per_family,
        ("fd00::1,fd00::2",),
        "two IPv6 values, fd00::1 and fd00::2; give at most one per family",
    ),
    "address instead of a cluster CIDR": InvalidCase(
        parse_cluster_cidrs, ("10.244.0.0",), "'10.244.0.0' is not a CIDR such as"
    ),
    "prefix too long": InvalidCase(parse_cluster_cidrs, ("10.244.0.0/33",), "'10.244.0.0/33' is not a CIDR such as"),
    "two cluster CIDRs": InvalidCase(
        parse_cluster_cidrs,
        ("10.244.0.0/16,10.245.0.0/16",),
        "two IPv4 values, 10.244.0.0/16 and 10.245.0.0/16; give at most one per family",
    ),
    "netmask instead of a prefix length": InvalidCase(
        parse_networks, ("10.0.0.0/255.0.0.0",), "'10.0.0.0/255.0.0.0' is not a CIDR such as"
    ),
    "prefix length without an address": InvalidCase(parse_networks, ("/8",), "'/8' is not a CIDR such as"),
    "prefix length with a sign": InvalidCase(parse_networks, ("10.0.0.0/+8",), "'10.0.0.0/+8' is not a CIDR such as"),
    "no prefix length after the slash": InvalidCase(
        parse_networks, ("10.0.0.0/",), "'10.0.0.0/' is not a CIDR such as"
    ),
    "unknown keyword": InvalidCase(parse_nodeport_addresses, ("everything",), "'everything' is not a CIDR such as"),
    "keyword in capitals": InvalidCase(parse_nodeport_addresses, ("Primary",), "'Primary' is not a CIDR such as"),
    "localhost": InvalidCase(parse_nodeport_addresses, ("localhost",), LOCALHOST),
    "localhost after primary": InvalidCase(parse_nodeport_addresses, ("primary,localhost",), LOCALHOST),
}


@parametrize_cases(INVALID)
def test_invalid_value_error_names_flag_and_text(case: InvalidCase) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(f"--some-flag: {case.message}")):
        case.parse("--some-flag", case.given)


LOOPBACK = ("127.0.0.0/8", "::1/128")


@pytest.mark.parametrize(
    ("given", "parsed", "served"),
    [
        pytest.param(("localhost",), LOOPBACK, set(Family), id="the keyword"),
        pytest.param(("primary,localhost",), ("primary", *LOOPBACK), set(Family), id="beside another keyword"),
        pytest.param(("all", "localhost"), ("all", *LOOPBACK), set(Family), id="beside all"),
        pytest.param(("127.0.0.1/32",), ("127.0.0.1/32",), {Family.IPV4}, id="a loopback address"),
        pytest.param(("0.0.0.0/0,::1/128",), ("0.0.0.0/0", "::1/128"), {Family.IPV6}, id="beside all of a family"),
        pytest.param(("all",), ("all",), set(), id="all does not include loopback"),
        pytest.param(("0.0.0.0/0,::/0",), ("0.0.0.0/0", "::/0"), set(), id="CIDRs of all addresses do not either"),
        pytest.param((), ("primary",), set(), id="the default"),
    ],
)
def test_nodeports_on_loopback_addresses_need_the_gate_and_a_loopback_cidr(
    given: tuple[str, ...], parsed: tuple[str, ...], served: set[Family]
) -> None:
    addresses = parse_nodeport_addresses("--some-flag", given, localhost_nodeports=True)
    assert addresses == parsed
    with_gate = Config("node-1", nodeport_addresses=addresses, localhost_nodeports=True)
    assert {family for family in Family if with_gate.serves_localhost_nodeports(family)} == served
    without_gate = structs.replace(with_gate, localhost_nodeports=False)
    assert not any(map(without_gate.serves_localhost_nodeports, Family))


class NodePorts(NamedTuple):
    """``--nodeport-addresses``; the CIDRs of each family, and whether all local addresses accept NodePorts."""

    given: tuple[str, ...]
    ipv4: tuple[tuple[str, ...], bool]
    ipv6: tuple[tuple[str, ...], bool]


NODE_PORTS = {
    "primary": NodePorts(("primary",), ((), False), ((), False)),
    "all": NodePorts(("all",), ((), True), ((), True)),
    "CIDRs of both families": NodePorts(
        ("192.0.2.0/24", "fd00::/64"), (("192.0.2.0/24",), False), (("fd00::/64",), False)
    ),
    "only IPv4 CIDRs: all IPv6 addresses accept NodePorts": NodePorts(
        ("192.0.2.0/24",), (("192.0.2.0/24",), False), ((), True)
    ),
    "only IPv6 CIDRs: all IPv4 addresses accept NodePorts": NodePorts(
        ("fd00::/64",), ((), True), (("fd00::/64",), False)
    ),
    "primary and a CIDR": NodePorts(("primary", "192.0.2.0/24"), (("192.0.2.0/24",), False), ((), False)),
    "IPv4 zero CIDR with other CIDRs": NodePorts(
        ("192.0.2.0/24", "0.0.0.0/0", "fd00::/64"), (("192.0.2.0/24", "0.0.0.0/0"), True), (("fd00::/64",), False)
    ),
    "IPv6 zero CIDR": NodePorts(("primary", "::/0"), ((), False), (("::/0",), True)),
}


@parametrize_cases(NODE_PORTS)
def test_nodeport_addresses_by_family(case: NodePorts) -> None:
    config = Config("node-1", nodeport_addresses=case.given)
    by_family = [(config.nodeport_cidrs(family), config.nodeports_on_all_addresses(family)) for family in Family]
    assert [case.ipv4, case.ipv6] == by_family


def test_cluster_cidr_by_family() -> None:
    config = Config("node-1", cluster_cidrs=("10.244.0.0/16",))
    assert [config.cluster_cidr(family) for family in Family] == ["10.244.0.0/16", None]


@pytest.mark.parametrize(("bit", "expected"), [(0, 0x1), (14, 0x4000), (31, 0x80000000)])
def test_masquerade_mark_has_the_bit_set(bit: int, expected: int) -> None:
    assert expected == Config("node-1", masquerade_bit=bit).masquerade_mark
