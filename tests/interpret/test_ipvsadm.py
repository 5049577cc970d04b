"""Parsing of ``ipvsadm -Sn``; docs/behaviour/ipvs.md#service-ports describes the servers that kube-proxy creates."""

import pytest

from knft.errors import CaptureError
from knft.interpret.ipvs import read
from knft.interpret.rules import VirtualServer

SAVED = """\
-A -t 10.96.0.1:443 -s rr
-a -t 10.96.0.1:443 -r 192.168.0.2:6443 -m -w 1
-a -t 10.96.0.1:443 -r 192.168.0.3:6443 -m -w 0
-A -u 10.96.0.10:53 -s rr -p 10800
-a -u 10.96.0.10:53 -r 10.1.0.5:53 -m -w 3
-A --sctp-service 10.96.0.11:9 -s mh -b flag-1
-A -t [fd00::1]:80 -s rr -p 300 -M 128
-a -t [fd00::1]:80 -r [fd00::2]:8080 -m -w 1
"""


def test_ipv4_servers() -> None:
    assert read(SAVED, 4) == (
        VirtualServer(0x0A600001, 6, 443, "rr", ((0xC0A80002, 6443, 1), (0xC0A80003, 6443, 0)), line=1),
        VirtualServer(0x0A60000A, 17, 53, "rr", ((0x0A010005, 53, 3),), 10800, 4),
        VirtualServer(0x0A60000B, 132, 9, "mh", (), line=6),
    )


def test_ipv6_servers() -> None:
    first = 0xFD00 << 112
    assert read(SAVED, 6) == (VirtualServer(first | 1, 6, 80, "rr", ((first | 2, 8080, 1),), 300, 7),)


def test_missing_options_have_ipvsadm_defaults() -> None:
    text = "-A -t 10.0.0.1:80 -p\n-a -t 10.0.0.1:80 -r 10.0.0.2:80 -m"
    assert read(text, 4) == (VirtualServer(0x0A000001, 6, 80, "wlc", ((0x0A000002, 80, 1),), 300, 1),)


def test_edit_and_delete_commands() -> None:
    text = f"{SAVED}-e -t 10.96.0.1:443 -r 192.168.0.3:6443 -m -w 7\n-E -t 10.96.0.1:443 -s lc\n"
    changed = read(f"{text}-d -t 10.96.0.1:443 -r 192.168.0.2:6443\n-D -u 10.96.0.10:53\n", 4)
    assert changed[0] == VirtualServer(0x0A600001, 6, 443, "lc", ((0xC0A80003, 6443, 7),), line=10)
    assert [server.protocol for server in changed] == [6, 132]
    assert read(f"{SAVED}-C\n", 4) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "-A -f 3 -s rr",
            (
                "line 1: the virtual server for firewall mark '3' is not supported: "
                "delete its lines if packets to Services do not have that mark"
            ),
        ),
        (
            "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.0.0.2:80 -g -w 1",
            "line 2: real servers with direct routing or a tunnel are not supported, only with masquerading (-m)",
        ),
        (
            "-A -t 10.0.0.1:0 -s rr -p 300",
            "line 1: virtual servers for all ports (0) are not supported; delete their lines from the file",
        ),
        (
            "-A -t localhost:http -s rr",
            "line 1: 'localhost:http' is not an address with a port: print them as numbers, with `ipvsadm -Sn`",
        ),
        (
            "-A -t 10.0.0.1:http -s rr",
            "line 1: 'http' is not a number from 0 to 65535: print them as numbers, with `ipvsadm -Sn`",
        ),
        (
            "-a -t 10.0.0.1:80 -r 10.0.0.2:80 -m",
            "line 1: no line above adds the virtual server; the capture is incomplete: run `ipvsadm -Sn` again",
        ),
        ("-A -s rr", "line 1: the virtual server is missing (-t, -u or --sctp-service)"),
        (
            "\nIP Virtual Server version 1.2.1 (size=4096)",
            "line 2: 'IP Virtual Server version 1.2.1 (size=4096)' is not output of `ipvsadm -Sn`",
        ),
    ],
)
def test_unsupported_lines_are_rejected(text: str, message: str) -> None:
    with pytest.raises(CaptureError) as caught:
        read(text, 4)
    assert str(caught.value) == message
