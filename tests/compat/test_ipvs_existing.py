"""Tests of reading the output of ``ipvsadm`` and ``ip``: valid, broken and foreign input."""

import re

import pytest

from knft.errors import SourceError
from knft_compat.ipvs import read_addresses, read_servers
from knft_compat.ipvs.existing import ExistingRealServer, ExistingServer

SAVED = """\
-A -t 10.96.0.1:443 -s rr -p 10800
-a -t 10.96.0.1:443 -r 192.0.2.10:6443 -m -w 1
-A -u [fd00:96::a]:53 -s mh -b mh-port
-a -u [fd00:96::a]:53 -r [fd00:244::1]:5353 -m -w 0
-A --sctp-service 10.96.0.3:9 -s lc
"""
LISTED = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 rr persistent 10800
  -> 192.0.2.10:6443              Masq    1      2          3
UDP  [fd00:96::a]:53 mh (mh-port)
  -> [fd00:244::1]:5353           Masq    0      0          0
SCTP 10.96.0.3:9 lc
"""


def expected(connections: int) -> tuple[ExistingServer, ...]:
    """Return the servers in both texts."""
    return (
        ExistingServer(
            "10.96.0.1", 443, "TCP", "rr", 10800, real_servers=(ExistingRealServer("192.0.2.10", 6443, 1, connections),)
        ),
        ExistingServer(
            "fd00:96::a",
            53,
            "UDP",
            "mh",
            0,
            hashes_ports=True,
            real_servers=(ExistingRealServer("fd00:244::1", 5353, 0),),
        ),
        ExistingServer("10.96.0.3", 9, "SCTP", "lc"),
    )


def test_ipvsadm_listing_has_connection_counts() -> None:
    existing = read_servers("-", LISTED)
    assert existing.servers == expected(5)
    assert existing.warnings == ()


def test_ipvsadm_save_without_counts_causes_a_warning() -> None:
    existing = read_servers("saved.txt", SAVED)
    assert existing.servers == expected(0)
    (warning,) = existing.warnings
    assert warning.startswith("saved.txt: 2 real servers have no connection counts; assuming 0 ")


@pytest.mark.parametrize("text", [SAVED + LISTED, LISTED + SAVED])
def test_save_and_listing_in_one_file_describe_the_same_servers(text: str) -> None:
    existing = read_servers("-", text)
    assert existing.servers == expected(5)
    assert existing.warnings == ()


def test_empty_listing_has_no_servers() -> None:
    for text in ("", "\n", LISTED[: LISTED.index("TCP")]):
        assert read_servers("-", text).servers == ()


@pytest.mark.parametrize(
    "line",
    [
        "-A -u 10.96.0.1:53 -s rr -o",
        "-A -t 10.96.0.1:53 -s rr -b flag-1",
        "-A -t 10.96.0.1:53 -s rr -p 300 --pe sip",
        "UDP  10.96.0.1:53 rr ops",
        "TCP  10.96.0.1:53 sh (sh-port)",
        "TCP  10.96.0.1:53 sh ()",
        "-A -t 10.96.0.1:53 -s sh -b",
        "TCP  10.96.0.1:53 rr persistent 300 pe sip",
    ],
)
def test_server_with_flags_that_kube_proxy_never_sets_is_marked(line: str) -> None:
    assert read_servers("-", line).servers[0].has_other_flags


def test_masks_limits_and_tunnels_are_ignored() -> None:
    text = "-A -t 10.96.0.1:80 -s rr -p 300 -M 255.255.255.0\n-a -t 10.96.0.1:80 -r 10.244.1.1:80 -g -w 1 -x 5 -y 2\n"
    text += "-a -t 10.96.0.1:80 -r 10.244.1.2:80 -i --tun-type gue --tun-port 6080 --tun-nocsum -w 1\n"
    (server,) = read_servers("-", text).servers
    assert (server.persistent, server.has_other_flags, len(server.real_servers)) == (300, False, 2)


KINDS = "not printed by ipvsadm -Sn or ipvsadm -Ln:"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("*nat\n:KUBE-SERVICES - [0:0]\n", 1, f"{KINDS} '*nat'"),
        ("create KUBE-LOOP-BACK hash:ip,port,ip family inet\n", 1, KINDS),
        ("10.96.0.1\n", 1, KINDS),
        ("-D -t 10.96.0.1:80\n", 1, KINDS),
        ("-A -t 10.96.0.1:80 -s rr\n-A -t 10.96.0.2:80\n", 2, KINDS),
        ("Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\n", 1, KINDS),
        ("-A -f 1 -s rr\n", 1, "virtual server with a firewall mark"),
        (LISTED + "FWM  1 rr\n", 9, "virtual server with a firewall mark"),
        ("-a -t 10.96.0.1:80 -r 10.244.1.1:80 -m -w 1\n", 1, "10.96.0.1:80 must precede its real server"),
        ("  -> 10.244.1.1:80  Masq 1 0 0\n", 1, "real server without a preceding virtual server"),
        ("-A -t kubernetes:https -s rr\n", 1, "'kubernetes:https' is not a numeric address and port"),
        ("TCP  10.96.0.1:https rr\n", 1, "'10.96.0.1:https' is not a numeric address and port"),
        ("TCP  fd00::1:80 rr\n", 1, "'fd00::1:80' is not a numeric address and port"),
        ("TCP  [10.96.0.1]:80 rr\n", 1, "is not a numeric address and port"),
        ("TCP  10.96.0.1:65536 rr\n", 1, "is not a numeric address and port"),
        ("TCP  10.96.0.1:٨ rr\n", 1, "is not a numeric address and port"),
        ("-A -t 10.96.0.1:80 -s rr -p ٨\n", 1, KINDS),
    ],
)
def test_unexpected_line_is_refused_with_its_number(text: str, line: int, message: str) -> None:
    with pytest.raises(SourceError, match=re.escape(message)) as error:
        read_servers("saved.txt", text)
    assert str(error.value).startswith(f"saved.txt: line {line}: ")


SHOWN = """\
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default qlen 1000
    link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff
    altname enp0s1
    inet 192.0.2.10/24 brd 192.0.2.255 scope global dynamic eth0
       valid_lft 86000sec preferred_lft 86000sec
3: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default
    link/ether 7e:1c:5d:00:00:01 brd ff:ff:ff:ff:ff:ff
    inet 10.96.0.1/32 scope global kube-ipvs0
       valid_lft forever preferred_lft forever
    inet6 fd00:96::1/128 scope global
       valid_lft forever preferred_lft forever
"""


def test_only_addresses_of_kube_ipvs0_are_read() -> None:
    assert read_addresses("-", SHOWN) == ("10.96.0.1", "fd00:96::1")


def test_addresses_one_per_line_are_parsed() -> None:
    assert read_addresses("-", "10.96.0.1\n\n10.96.0.2/32\nFD00:96::1/128\n10.96.0.1\n") == (
        "10.96.0.1",
        "10.96.0.2",
        "fd00:96::1",
    )


def test_addresses_from_ip_oneline_are_parsed() -> None:
    text = "2: eth0    inet 192.0.2.10/24 scope global eth0\\ valid_lft forever\n3: kube-ipvs0    inet 10.96.0.1/32 scope global kube-ipvs0\\ valid_lft forever\n"  # noqa: E501
    assert read_addresses("-", text) == ("10.96.0.1",)


@pytest.mark.parametrize("text", ["*nat\n", "10.96.0\n", "10.96.0.1/33\n", "kube-ipvs0 UNKNOWN\n", LISTED, SAVED])
def test_unexpected_address_line_is_refused_with_its_number(text: str) -> None:
    with pytest.raises(
        SourceError, match=r"^bound\.txt: line 1: '.*' is neither an address nor a line of ip address show"
    ):
        read_addresses("bound.txt", text)
