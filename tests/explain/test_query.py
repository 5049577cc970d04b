"""WHAT of ``knft explain``: its forms, and clear errors for everything else."""

import pytest

from knft.errors import UsageError
from knft.explain.query import AddressQuery, NodePortQuery, Query, ServiceQuery, parse_query
from knft.families import Family
from knft.model.names import NamespacedName

FORMS = "a Service (namespace/name), an address, ADDRESS:PORT/PROTOCOL, or a NodePort (:PORT/PROTOCOL)"
WEB = NamespacedName("default", "web")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("web", ServiceQuery("web", WEB)),
        ("shop/web", ServiceQuery("shop/web", NamespacedName("shop", "web"))),
        ("shop/web:http", ServiceQuery("shop/web:http", NamespacedName("shop", "web"), "http")),
        ("web:80", ServiceQuery("web:80", WEB, "80")),
        ("10.96.0.10", AddressQuery("10.96.0.10", Family.IPV4, "10.96.0.10")),
        ("fd00::0:10", AddressQuery("fd00::0:10", Family.IPV6, "fd00::10")),
        ("[fd00::10]", AddressQuery("[fd00::10]", Family.IPV6, "fd00::10")),
        ("10.96.0.10:53/UDP", AddressQuery("10.96.0.10:53/udp", Family.IPV4, "10.96.0.10", 53, "UDP")),
        ("010.96.0.10:80", AddressQuery("10.96.0.10:80/tcp", Family.IPV4, "10.96.0.10", 80)),
        ("[fd00::10]:80/sctp", AddressQuery("[fd00::10]:80/sctp", Family.IPV6, "fd00::10", 80, "SCTP")),
        (":30080", NodePortQuery(":30080/tcp", 30080)),
        (":30080/udp", NodePortQuery(":30080/udp", 30080, "UDP")),
    ],
)
def test_forms(text: str, query: Query) -> None:
    assert parse_query(text) == query


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not the name of a Service"),
        ("/", "'' is not the name of a namespace"),
        ("a/b/c", "'a/b/c' is not a Service (namespace/name), an address, ADDRESS:PORT/PROTOCOL, or a NodePort"),
        ("Web", "'Web' is not the name of a Service"),
        ("shop/web:ht_tp", "'ht_tp' is not the name of a port"),
        ("10.96.0.300", "'10.96.0.300' is not an IP address"),
        ("10.96.0.300:80", "'10.96.0.300' is not an IP address"),
        ("web:80/tcp", "'web' is not an IP address"),
        ("10.96.0.10:", "'' is not a port from 1 to 65535"),
        ("10.96.0.10:0", "'0' is not a port"),
        ("10.96.0.10:65536", "'65536' is not a port"),
        ("10.96.0.10:+80", "'+80' is not a port"),
        ("10.96.0.10:80/icmp", "'icmp' is not a protocol of Services; use tcp, udp or sctp"),
        ("10.96.0.10/tcp", "'10.96.0.10' is not the name of a namespace"),
        (":http", "'http' is not a port"),
        ("[fd00::g]:80", "'fd00::g' is not an IP address"),
        ("fd00::1::2:80", "write an IPv6 address with a port in brackets"),
        ("fe80::1%eth0", "write an IPv6 address"),
        ("\x1b[31m", "is not the name of a Service"),
        ("10.96.0.31]", "'10.96.0.31]' is not the name of a Service"),
        ("[10.96.0.31", "'[10.96.0.31' is not the name of a Service"),
        ("http://10.96.0.1:80", "'http://10.96.0.1:80' is a URL; use '10.96.0.1:80'; expected a Service"),
        ("https://[fd00::1]/a?b#c", "is a URL; use '[fd00::1]'; expected a Service"),
        ("http:///", "'http:///' is a URL; expected a Service"),
        ("10.0.0.1/24", "'10.0.0.1' is not the name of a namespace, in '10.0.0.1/24'; expected a Service"),
    ],
)
def test_everything_else_is_an_error(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_query(text)
    assert str(raised.value).startswith("WHAT: ")
    assert message in str(raised.value)
    assert FORMS in str(raised.value)
    assert repr(text) in str(raised.value)
    assert str(raised.value).isprintable()
