"""What ``ipvsadm -Sn`` prints, as servers; behaviour.md E.6 says what kube-proxy makes."""

import pytest

from knft.errors import CaptureError
from knft.interpret.ipvs import servers
from knft.interpret.rules import Server

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


def test_servers_of_ipv4() -> None:
    assert servers(SAVED, 4) == (
        Server(0x0A600001, 6, 443, "rr", ((0xC0A80002, 6443, 1), (0xC0A80003, 6443, 0))),
        Server(0x0A60000A, 17, 53, "rr", ((0x0A010005, 53, 3),), 10800),
        Server(0x0A60000B, 132, 9, "mh", ()),
    )


def test_servers_of_ipv6() -> None:
    first = 0xFD00 << 112
    assert servers(SAVED, 6) == (Server(first | 1, 6, 80, "rr", ((first | 2, 8080, 1),), 300),)


def test_what_is_left_out_has_the_programs_defaults() -> None:
    text = "-A -t 10.0.0.1:80 -p\n-a -t 10.0.0.1:80 -r 10.0.0.2:80 -m"
    assert servers(text, 4) == (Server(0x0A000001, 6, 80, "wlc", ((0x0A000002, 80, 1),), 300),)


def test_servers_are_changed_and_deleted() -> None:
    text = f"{SAVED}-e -t 10.96.0.1:443 -r 192.168.0.3:6443 -m -w 7\n-E -t 10.96.0.1:443 -s lc\n"
    changed = servers(f"{text}-d -t 10.96.0.1:443 -r 192.168.0.2:6443\n-D -u 10.96.0.10:53\n", 4)
    assert changed[0] == Server(0x0A600001, 6, 443, "lc", ((0xC0A80003, 6443, 7),))
    assert [server.protocol for server in changed] == [6, 132]
    assert servers(f"{SAVED}-C\n", 4) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "-A -f 3 -s rr",
            (
                "line 1: the virtual server of firewall mark '3' cannot be followed: "
                "leave out its lines where no packets of Services have that mark"
            ),
        ),
        (
            "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.0.0.2:80 -g -w 1",
            (
                "line 2: the real server gets packets by direct routing or a tunnel, "
                "and only masquerading (-m) can be followed"
            ),
        ),
        (
            "-A -t 10.0.0.1:0 -s rr -p 300",
            "line 1: a virtual server of every port (0) cannot be followed: leave out its lines, Services have none",
        ),
        (
            "-A -t localhost:http -s rr",
            "line 1: 'localhost:http' is no address with its port: print them as numbers, with `ipvsadm -Sn`",
        ),
        (
            "-A -t 10.0.0.1:http -s rr",
            "line 1: 'http' is no number up to 65535: print them as numbers, with `ipvsadm -Sn`",
        ),
        (
            "-a -t 10.0.0.1:80 -r 10.0.0.2:80 -m",
            "line 1: the virtual server was not added above: the capture is not whole, take it again",
        ),
        ("-A -s rr", "line 1: no virtual server is named (-t, -u or --sctp-service)"),
        (
            "\nIP Virtual Server version 1.2.1 (size=4096)",
            "line 2: 'IP Virtual Server version 1.2.1 (size=4096)' is nothing that `ipvsadm -Sn` prints",
        ),
    ],
)
def test_what_cannot_be_followed_is_named(text: str, message: str) -> None:
    with pytest.raises(CaptureError) as caught:
        servers(text, 4)
    assert str(caught.value) == message
