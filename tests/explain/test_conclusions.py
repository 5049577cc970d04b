"""First lines of ``knft explain``: endpoints of several Service ports, Services without rules, lost frontends."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from knft.config import Config
from knft.model.annotations import Annotations
from knft.model.objects import Labels, LoadBalancerIngress
from tests.support.explain_sources import CONFIG, NODE_IP, explained, first_line, of_objects, of_rules, served
from tests.support.kube_objects import endpoint, endpoint_slice, service, service_port, slice_port

OTHER_PROXY = Labels(proxy_name="other")
PROXY_REASON = (
    "Service default/foreign has label service.kubernetes.io/service-proxy-name=other, so knft has no rules for it"
)


def _slice_of(name: str, *endpoints: Any, **more: Any) -> Any:
    return endpoint_slice(f"{name}-1", *endpoints, service=name, **more)


class TestEndpointOfServicePorts:
    """How the first line says which Service ports use an endpoint."""

    def test_all_traffic_is_excluded_for_different_reasons(self) -> None:
        spec: dict[str, Any] = {
            "type": "NodePort",
            "internal_traffic_policy": "Local",
            "external_traffic_policy": "Local",
        }
        elsewhere = endpoint("10.244.2.11", node="node-2")
        here = endpoint("10.244.1.11", node="node-1")
        source = of_objects(service(ports=(service_port(node_port=30080),), **spec), _slice_of("web", elsewhere, here))
        line = first_line("10.244.2.11", source)
        assert line == (
            "10.244.2.11 is an endpoint of default/web:http; used for external frontends from pods and this node, "
            "not for the cluster IP and external frontends from outside"
        )

    def test_no_traffic_uses_it(self) -> None:
        spec: dict[str, Any] = {"internal_traffic_policy": "Local", "external_ips": ("203.0.113.5",)}
        gone = endpoint("10.244.2.11", node="node-2", ready=False, serving=True, terminating=True)
        here = endpoint("10.244.1.11", node="node-1")
        source = of_objects(service(**spec), _slice_of("web", gone, here))
        assert first_line("10.244.2.11", source) == (
            "10.244.2.11 is an endpoint of default/web:http; not used: on another node, and internalTrafficPolicy is "
            "Local; not used: terminates, and other endpoints are ready"
        )

    def test_several_ports(self) -> None:
        """One uses the endpoint, one for some traffic, one does not."""
        elsewhere = endpoint("10.244.2.11", node="node-2")
        objects = [
            service("a", cluster_ip="10.96.0.11"),
            _slice_of("a", elsewhere),
            service("b", cluster_ip="10.96.0.12", internal_traffic_policy="Local", external_ips=("203.0.113.5",)),
            _slice_of("b", elsewhere),
            service("c", cluster_ip="10.96.0.13"),
            _slice_of("c", endpoint("10.244.2.11", ready=False)),
        ]
        uses = "used by default/a:http, not by default/c:http; used for some traffic by default/b:http"
        ports = "default/a:http, default/b:http and default/c:http"
        assert first_line("10.244.2.11", of_objects(*objects)) == f"10.244.2.11 is an endpoint of {ports}; {uses}"

    def test_several_ports_that_use_it_for_some_traffic(self) -> None:
        elsewhere = endpoint("10.244.2.11", node="node-2")
        objects = [
            item
            for name, ip in (("a", 1), ("b", 2))
            for item in (
                service(
                    name,
                    cluster_ip=f"10.96.0.1{ip}",
                    internal_traffic_policy="Local",
                    external_ips=(f"203.0.113.{ip}",),
                ),
                _slice_of(name, elsewhere),
            )
        ]
        line = first_line("10.244.2.11", of_objects(*objects))
        assert line.endswith("; used for some traffic by default/a:http and default/b:http")

    def test_several_ports_that_all_use_it(self) -> None:
        objects = [
            service("a", cluster_ip="10.96.0.11"),
            _slice_of("a", "10.244.2.11"),
            service("b", cluster_ip="10.96.0.12"),
            _slice_of("b", endpoint("10.244.2.11", ready=False, serving=True, terminating=True)),
        ]
        assert first_line("10.244.2.11", of_objects(*objects)).endswith("; used by default/a:http and default/b:http")

    def test_several_ports_of_which_none_uses_it(self) -> None:
        objects = [
            service("a", cluster_ip="10.96.0.11"),
            _slice_of("a", endpoint("10.244.2.11", ready=False)),
            service("b", cluster_ip="10.96.0.12"),
            _slice_of("b", endpoint("10.244.2.11", ready=False, serving=False, terminating=True)),
        ]
        line = first_line("10.244.2.11", of_objects(*objects))
        assert line.endswith("; not used by default/a:http and default/b:http")


class TestServicesWithoutRules:
    """What knft has no rules for is not called missing."""

    @pytest.mark.parametrize("mode", [None, "VIP"])
    def test_load_balancer_ip(self, mode: Any) -> None:
        foreign = service(
            "foreign", labels=OTHER_PROXY, type="LoadBalancer", ingresses=(LoadBalancerIngress("203.0.113.7", mode),)
        )
        for what in ("203.0.113.7", "203.0.113.7:80"):
            found = explained(what, of_objects(foreign))
            assert found.found
            assert [each.text for each in found.conclusion] == [
                "203.0.113.7 is an address of Service default/foreign",
                PROXY_REASON,
                "203.0.113.7 is in no Service CIDR, so knft does not translate packets to it",
            ]

    @pytest.mark.parametrize("what", [":30070", f"{NODE_IP}:30070"])
    def test_node_port(self, what: str) -> None:
        foreign = service("foreign", labels=OTHER_PROXY, type="NodePort", ports=(service_port(node_port=30070),))
        found = explained(what, of_objects(foreign))
        assert found.found
        assert [each.text for each in found.conclusion] == [
            "30070/tcp is a NodePort of Service default/foreign",
            PROXY_REASON,
            "the node's processes get the packets",
        ]
        assert not explained(f"{what}/udp", of_objects(foreign)).found

    @pytest.mark.parametrize("what", [":30071", f"{NODE_IP}:30071"])
    def test_health_check_port(self, what: str) -> None:
        balanced = served(
            "lb", "10.96.0.30", type="LoadBalancer", external_traffic_policy="Local", health_check_node_port=30071
        )
        found = explained(what, of_objects(*balanced))
        assert found.found
        assert [each.text for each in found.conclusion] == [
            "30071/tcp is the health check port of Service default/lb, so knft run answers the requests"
        ]

    @pytest.mark.parametrize("what", ["10.244.2.13", "10.244.2.13:8080"])
    def test_endpoint(self, what: str) -> None:
        headless = service("headless", cluster_ip="None")
        source = of_objects(headless, _slice_of("headless", "10.244.2.13"))
        found = explained(what, source)
        assert found.found
        named = what if ":" not in what else f"{what}/tcp"
        assert [each.text for each in found.conclusion] == [
            f"{named} is in an EndpointSlice of Service default/headless",
            "Service default/headless is headless, so knft has no rules for it: clients connect to pods themselves",
        ]
        assert not explained("10.244.2.13:9999", source).found

    def test_endpoint_of_no_port_of_the_service(self) -> None:
        source = of_objects(service(), _slice_of("web", "10.244.2.13", ports=(slice_port("other"),)))
        assert first_line("10.244.2.13", source) == (
            "10.244.2.13 is in an EndpointSlice of Service default/web; Service default/web has no port of this name "
            "and protocol, so knft sends it no connections"
        )

    def test_node_address_alone_is_no_node_port(self) -> None:
        source = of_objects(*served("web", "10.96.0.10", ports=(service_port(node_port=0),)))
        assert first_line(NODE_IP, source) == (
            f"{NODE_IP} is an address of this node; no Service has a frontend there, so its processes get the packets"
        )

    def test_endpoint_on_the_network_of_the_node(self) -> None:
        headless = service("headless", cluster_ip="None")
        line = first_line(f"{NODE_IP}:8080", of_objects(headless, _slice_of("headless", NODE_IP)))
        assert line.startswith(f"{NODE_IP}:8080/tcp is in an EndpointSlice of Service default/headless; ")

    def test_endpoint_of_a_family_without_cluster_ip(self) -> None:
        source = of_objects(service(), _slice_of("web", "fd00:10:244::13", family="IPv6"))
        assert first_line("fd00:10:244::13", source) == (
            "fd00:10:244::13 is in an EndpointSlice of Service default/web; Service default/web has no IPv6 cluster "
            "IP, so knft has no IPv6 rules for it"
        )

    def test_endpoint_of_a_missing_service(self) -> None:
        source = of_objects(_slice_of("gone", "10.244.2.13"))
        assert first_line("10.244.2.13", source) == (
            "10.244.2.13 is in an EndpointSlice of Service default/gone; there is no Service default/gone"
        )


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("10.96.0.20", "no frontend at 10.96.0.20; 10.96.0.0/16 is a Service CIDR, so packets to it are dropped"),
        (
            "10.244.1.51",
            "no frontend 10.244.1.51, and it is in no Service CIDR: knft does not translate packets to it",
        ),
        (f"{NODE_IP}:31000", "no NodePort 31000/tcp, so its processes get the packets"),
        (NODE_IP, "no frontend there, so its processes get the packets"),
        (":31000", "no NodePort 31000/tcp, so the node's processes get the packets"),
        ("web:other", "no frontend of port 'other' of Service default/web, only of 'http' (80/tcp)"),
    ],
)
def test_rules_alone_do_not_tell_which_services_exist(what: str, line: str) -> None:
    line_of_node = f"{NODE_IP} is an address of this node; " if what.startswith(NODE_IP) else ""
    expected = f"{line_of_node}knft's rules have {line}"
    assert first_line(what, of_rules(*served("web", "10.96.0.10"))) == expected


class TestLostFrontends:
    """A Service port whose frontends other Service ports own."""

    TWO = (
        service("first", cluster_ip="10.96.0.31"),
        *served("second", "10.96.0.31"),
    )

    def test_no_endpoint_is_used(self) -> None:
        lost = "default/second:http does not get 10.96.0.31:80/tcp, which default/first:http owns"
        found = explained("second", of_objects(*self.TWO))
        (port,) = found.ports
        assert [each.text for each in found.conclusion] == [lost]
        assert port.conclusion.text == lost
        assert [each.text for each in port.problems] == [lost]
        ((use,),) = (each.uses for each in port.endpoints)
        assert (use.is_used, use.reason.text) == (False, "not used: these frontends belong to default/first:http")
        assert not port.endpoints[0].is_used

    def test_endpoint_is_not_called_used(self) -> None:
        assert first_line("10.244.2.11", of_objects(*self.TWO)) == (
            "10.244.2.11 is an endpoint of default/second:http; not used: these frontends belong to default/first:http"
        )

    def test_connections_to_another_service_are_not_called_rejected(self) -> None:
        """It has no endpoints, but gets no connections that could be rejected."""
        source = of_objects(*served("first", "10.96.0.31"), service("second", cluster_ip="10.96.0.31"))
        assert first_line("second", source) == (
            "default/second:http does not get 10.96.0.31:80/tcp, which default/first:http owns"
        )

    def test_lost_cluster_ip_excludes_its_traffic_alone(self) -> None:
        source = of_objects(
            service("first", cluster_ip="10.96.0.31"), *served("second", "10.96.0.31", external_ips=("203.0.113.5",))
        )
        assert first_line("10.244.2.11", source) == (
            "10.244.2.11 is an endpoint of default/second:http; used for external frontends, not for the cluster IP"
        )

    def test_each_owner_is_named_with_its_frontends(self) -> None:
        lost = ("10.96.0.11", "10.96.0.12", "10.96.0.13")
        source = of_objects(
            *served("a", "10.96.0.11"),
            *served("b", "10.96.0.12"),
            *served("c", "10.96.0.13", ports=(service_port(name="web"),)),
            *served("z", "10.96.0.19", external_ips=lost),
        )
        (port,) = explained("z", source).ports
        assert [each.text for each in port.problems] == [
            "default/z:http does not get 10.96.0.11:80/tcp, which default/a:http owns",
            "default/z:http does not get 10.96.0.12:80/tcp, which default/b:http owns",
            "default/z:http does not get 10.96.0.13:80/tcp, which default/c:web owns",
        ]

    def test_another_port_of_the_same_service_is_an_owner(self) -> None:
        twice = served(
            "web", "10.96.0.10", ports=(service_port(node_port=30080), service_port(81, "admin", node_port=30080))
        )
        (_, port) = explained("web", of_objects(*twice)).ports
        assert [each.text for each in port.problems] == [
            "default/web:http does not get :30080/tcp, which default/web:admin owns"
        ]


def test_slices_without_ports() -> None:
    source = of_objects(service(), _slice_of("web", "10.244.2.11", ports=()))
    assert first_line("web", source) == (
        "the IPv4 EndpointSlices of Service default/web have no ports, so IPv4 connections to default/web:http are "
        "rejected"
    )


class TestNodePortsOfFamilies:
    """The families may differ."""

    IPV6: ClassVar[dict[str, Any]] = {"ip_families": ("IPv6",), "cluster_ips": ("fd00:10:96::53",)}

    def test_other_protocol_of_the_second_family(self) -> None:
        only_ipv6 = service(
            "dns", cluster_ip="fd00:10:96::53", ports=(service_port(53, "dns", "UDP", node_port=30053),), **self.IPV6
        )
        assert first_line(":30053/tcp", of_objects(only_ipv6)) == (
            "default/dns has NodePort 30053 for udp only, so the node's processes get the packets with tcp"
        )

    def test_owner_of_each_family(self) -> None:
        ports = (service_port(node_port=30080),)
        source = of_objects(
            service("four", cluster_ip="10.96.0.4", ports=ports),
            service("six", cluster_ip="fd00:10:96::53", ports=ports, **self.IPV6),
        )
        line = first_line(":30080", source)
        assert ":30080/tcp is a NodePort of Service port default/four:http for IPv4" in line
        assert ":30080/tcp is a NodePort of Service port default/six:http for IPv6" in line


class TestPodsOfOtherNodes:
    """Policy Local keeps the addresses of pods, also of those that get no reply through this node."""

    NOTE = (
        "externalTrafficPolicy Local keeps the addresses of pods, so only pods of this node get replies from endpoints "
        "on other nodes"
    )
    PORTS: ClassVar[dict[str, Any]] = {"type": "NodePort", "ports": (service_port(node_port=30080),)}
    HERE, ELSEWHERE = endpoint("10.244.1.11", node="node-1"), endpoint("10.244.2.11", node="node-2")

    @pytest.mark.parametrize(
        ("policy", "endpoints", "is_noted"),
        [
            ("Local", (HERE, ELSEWHERE), True),
            ("Local", (ELSEWHERE,), True),
            ("Local", (HERE,), False),
            ("Cluster", (HERE, ELSEWHERE), False),
        ],
    )
    def test_note(self, policy: str, endpoints: tuple[Any, ...], is_noted: bool) -> None:  # noqa: FBT001 - a parameter
        source = of_objects(service(external_traffic_policy=policy, **self.PORTS), _slice_of("web", *endpoints))
        (port,) = explained("web", source).ports
        assert (self.NOTE in [each.text for each in port.notes]) is is_noted


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("of_source", [of_objects, of_rules])
def test_dropped_invalid_packets_are_noted(of_source: Callable[..., Any], *, drops: bool) -> None:
    objects = (service(), _slice_of("web", endpoint("10.244.2.11", node="node-2")))
    source = of_source(*objects, config=replace(CONFIG, drop_invalid_packets=drops))
    (port,) = explained("web", source).ports
    note = (
        "this node drops the packets that it forwards and conntrack finds INVALID, of all connections "
        "(--drop-invalid-packets)"
    )
    assert [each.text for each in port.notes] == ([note] if drops else [])


@pytest.mark.parametrize("drain", [None, "keep", "reset"])
def test_ended_connections_are_noted(drain: str | None) -> None:
    item = service(annotations=Annotations(drain=drain))
    source = of_objects(item, _slice_of("web", endpoint("10.244.2.11", node="node-2")))
    (port,) = explained("web", source).ports
    note = (
        "some seconds after an endpoint is deleted, knft ends TCP connections to it, and clients that send something "
        "get a reset (knft.dev/drain: reset)"
    )
    assert [each.text for each in port.notes] == ([note] if drain == "reset" else [])


@pytest.mark.parametrize("suffix", ["", ".svc", ".svc.cluster.local", ".svc:80"])
def test_dns_name_of_a_service(suffix: str) -> None:
    found = service("web-np", namespace="shop")
    line = first_line(f"web-np.shop{suffix}", of_objects(found))
    name = f"default/web-np.shop{suffix.removesuffix(':80')}"
    assert line == f"there is no Service {name}; did you mean shop/web-np?"
    assert "did you mean" not in first_line("web-np.shop.pod", of_objects(found))


@pytest.mark.parametrize("make_source", [of_objects, of_rules])
@pytest.mark.parametrize(
    ("what", "more"),
    [
        (
            "192.0.2.12:30080",
            "NodePort 30080/tcp is that of default/web:http, but 192.0.2.12 is not an address of this ",
        ),
        ("192.0.2.12:30080/udp", ""),
        ("192.0.2.12:30081", ""),
        ("192.0.2.12", ""),
    ],
)
def test_node_port_of_another_node(make_source: Any, what: str, more: str) -> None:
    source = make_source(*served("web", "10.96.0.10", ports=(service_port(node_port=30080),)))
    _, _, after = first_line(what, source).partition("knft does not translate packets to it")
    assert after == (f"; {more}node" if more else "")


def test_address_is_named_in_its_canonical_form() -> None:
    assert first_line("01.2.3.4", of_objects()) == (
        "no Service has 1.2.3.4, and it is in no Service CIDR: knft does not translate packets to it"
    )


class TestNodePortsOnLoopback:
    """With the feature gate, a process of knft serves NodePorts at 127.0.0.1 and ::1."""

    SERVING = replace(CONFIG, nodeport_addresses=("primary", "127.0.0.0/8"), localhost_nodeports=True)
    OBJECTS = (
        service(
            ports=(service_port(node_port=30080), service_port(53, "dns", "UDP", node_port=30053)), type="NodePort"
        ),
        _slice_of("web", endpoint("10.244.2.11", node="node-2"), endpoint("10.244.1.11", node="node-1")),
    )
    NOTE = (
        "a process of knft serves the NodePort at 127.0.0.1:30080, too: each connection of a process of this node "
        "reaches one of {} endpoints, with this node's address as the source"
    )

    def _notes(self, what: str, *objects: Any, config: Config = SERVING) -> list[list[str]]:
        found = explained(what, of_objects(*objects, config=config))
        return [[note.text for note in port.notes] for port in found.ports]

    def test_service_port_has_a_note(self) -> None:
        note = self.NOTE.format(2)
        (notes,) = self._notes("web:http", *self.OBJECTS)
        assert note in notes
        assert self._notes("web:http", *self.OBJECTS, config=CONFIG) == [[each for each in notes if each != note]]
        assert self._notes("web:dns", *self.OBJECTS) == [[]]

    def test_policy_local_leaves_the_endpoints_on_this_node(self) -> None:
        changed = replace(self.OBJECTS[0], spec=replace(self.OBJECTS[0].spec, external_traffic_policy="Local"))
        (notes,) = self._notes("web:http", changed, self.OBJECTS[1])
        assert self.NOTE.format(1) in notes

    def test_loopback_address_is_a_frontend(self) -> None:
        source = of_objects(*self.OBJECTS, config=self.SERVING)
        assert first_line("127.0.0.1:30080", source) == (
            "127.0.0.1:30080/tcp is the NodePort of default/web:http, which a process of knft serves at this address; "
            "2 of 2 IPv4 endpoints of default/web:http get connections"
        )
        (port,) = explained("127.0.0.1:30080", source).ports
        assert len(port.endpoints) == 2

    @pytest.mark.parametrize(
        ("what", "port", "addresses"),
        [
            ("127.0.0.1:30053/udp", "dns", ("127.0.0.0/8",)),
            ("127.0.0.2:30053/udp", "dns", ("127.0.0.0/8",)),
            ("127.0.0.1:30080/tcp", "http", ("primary",)),
        ],
    )
    def test_other_protocols_are_rejected_and_tcp_without_loopback_addresses(
        self, what: str, port: str, addresses: tuple[str, ...]
    ) -> None:
        source = of_objects(*self.OBJECTS, config=replace(self.SERVING, nodeport_addresses=addresses))
        found = explained(what, source)
        (conclusion,) = found.conclusion
        assert conclusion.text == (
            f"{what} is the NodePort of default/web:{port}, which is not served at loopback addresses: packets are "
            "rejected"
        )
        assert [(each.client, each.fate) for each in found.outcomes] == [("node", "rejected")]

    @pytest.mark.parametrize("what", ["127.0.0.2:30080", "127.0.0.1:30081", "127.0.0.1:30053/udp", "[::1]:30080"])
    def test_other_loopback_addresses_ports_and_protocols_are_not_served(self, what: str) -> None:
        assert "a process of knft" not in first_line(what, of_objects(*self.OBJECTS, config=self.SERVING))

    def test_without_endpoints_it_is_not_served(self) -> None:
        source = of_objects(self.OBJECTS[0], config=self.SERVING)
        assert "a process of knft" not in first_line("127.0.0.1:30080", source)
        assert not any(self._notes("web:http", self.OBJECTS[0]))

    def test_rules_alone_do_not_tell(self) -> None:
        source = of_rules(*self.OBJECTS, config=self.SERVING)
        assert "a process of knft" not in first_line("127.0.0.1:30080", source)
