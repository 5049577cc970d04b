"""EndpointSlices and Nodes that cannot be meant: an endpoint costs itself, and at worst the slice."""

from pathlib import Path
from typing import Any

from tests.support.bad_manifests import Row, check_problems, endpoint_slice, text
from tests.support.kube_objects import parametrize_rows

GOOD_ENDPOINT = {"addresses": ["10.244.2.7"]}
PASSED = "the endpoint is ignored"
NO_SERVICE = "it is missing, so the slice belongs to no Service; ignored"


def _slice(**fields: Any) -> str:
    return text(endpoint_slice("bad", **fields))


def _without(field: str) -> str:
    return text({key: value for key, value in endpoint_slice("bad").items() if key != field})


def _endpoints(*addresses: Any) -> str:
    return _slice(endpoints=[*({"addresses": [item]} for item in addresses), GOOD_ENDPOINT])


LABEL = "metadata.labels['kubernetes.io/service-name']"

LEFT_OUT = {
    "a port of 70000": Row(
        _slice(ports=[{"name": "", "port": 70000}]),
        ("EndpointSlice bad: ports[0].port: 70000 is not between 0 and 65535; skipped",),
    ),
    "an unknown protocol": Row(
        _slice(ports=[{"name": "", "port": 80, "protocol": "QUIC"}]),
        ("EndpointSlice bad: ports[0].protocol: 'QUIC' is not SCTP, TCP or UDP; skipped",),
    ),
    "no address type": Row(_without("addressType"), ("EndpointSlice bad: addressType: it is missing; skipped",)),
    "an unknown address type": Row(
        _slice(addressType="IPv5"), ("EndpointSlice bad: addressType: 'IPv5' is not FQDN, IPv4 or IPv6; skipped",)
    ),
    "a label that is a number": Row(
        _slice(metadata={"name": "bad", "labels": {"kubernetes.io/service-name": 7}}),
        (f"EndpointSlice bad: {LABEL}: 7 is a number, expected text; put it in quotes; skipped",),
    ),
    "endpoints that are text": Row(
        _slice(endpoints=["10.244.2.7"]),
        ("EndpointSlice bad: endpoints[0]: '10.244.2.7' is text, expected a mapping; skipped",),
    ),
    "an address that is no list": Row(
        _slice(endpoints=[GOOD_ENDPOINT, {"addresses": "10.244.2.8"}]),
        (("EndpointSlice bad: endpoints[1].addresses: '10.244.2.8' is text, expected a list; skipped"),),
    ),
    "a condition that is text": Row(
        _slice(endpoints=[{"addresses": ["10.244.2.8"], "conditions": {"ready": "yes"}}]),
        ("EndpointSlice bad: endpoints[0].conditions.ready: 'yes' is not true or false; skipped",),
    ),
}

PASSED_OVER = {
    "no labels": Row(_slice(metadata={"name": "bad"}), (f"EndpointSlice bad: {LABEL}: {NO_SERVICE}",)),
    "another label": Row(
        _slice(metadata={"name": "bad", "labels": {"app": "web"}}), (f"EndpointSlice bad: {LABEL}: {NO_SERVICE}",)
    ),
    "an empty service label": Row(
        _slice(metadata={"name": "bad", "labels": {"kubernetes.io/service-name": ""}}),
        (f"EndpointSlice bad: {LABEL}: {NO_SERVICE}",),
    ),
    "a service label that would be nft syntax belongs to no Service": Row(
        _slice(metadata={"name": "bad", "labels": {"kubernetes.io/service-name": '"} ; flush ruleset'}}), ()
    ),
    "type FQDN": Row(
        _slice(addressType="FQDN", endpoints=[{"addresses": ["web.example"]}]),
        ("EndpointSlice bad: addressType: Service proxies do not serve FQDN endpoints; the slice is ignored",),
    ),
    "a null port name": Row(
        _slice(ports=[{"name": None, "port": 80}]),
        ("EndpointSlice bad: ports[0].name: it is missing or null; the port is ignored",),
    ),
    "a missing port name": Row(
        _slice(ports=[{"port": 80}]),
        ("EndpointSlice bad: ports[0].name: it is missing or null; the port is ignored",),
    ),
    "a null port": Row(
        _slice(ports=[{"name": "", "port": None}]),
        ("EndpointSlice bad: ports[0].port: it is missing or null, which means all ports; the port is ignored",),
    ),
    "port 0": Row(
        _slice(ports=[{"name": "", "port": 0}]),
        ("EndpointSlice bad: ports[0].port: it is 0; the port is ignored",),
    ),
    "ports: null": Row(_slice(ports=None), ()),
    "endpoints: null": Row(_slice(endpoints=None), ()),
}

ENDPOINTS = {
    "an empty address list": Row(
        _slice(endpoints=[{"addresses": []}, GOOD_ENDPOINT]),
        (f"EndpointSlice bad: endpoints[0].addresses: it is empty; {PASSED}",),
    ),
    "addresses: null": Row(
        _slice(endpoints=[{"addresses": None}, GOOD_ENDPOINT]),
        (f"EndpointSlice bad: endpoints[0].addresses: it is empty; {PASSED}",),
    ),
    "no addresses": Row(
        _slice(endpoints=[{}, GOOD_ENDPOINT]), (f"EndpointSlice bad: endpoints[0].addresses: it is empty; {PASSED}",)
    ),
    "an address that is none": Row(
        _endpoints("web-0"), (f"EndpointSlice bad: endpoints[0].addresses[0]: 'web-0' is not an IP address; {PASSED}",)
    ),
    "an address of the other family": Row(
        _endpoints("fd00::1"),
        (f"EndpointSlice bad: endpoints[0].addresses[0]: 'fd00::1' is not an IPv4 address; {PASSED}",),
    ),
    "a loopback address": Row(
        _endpoints("127.0.0.1"),
        (f"EndpointSlice bad: endpoints[0].addresses[0]: '127.0.0.1' is a loopback address; {PASSED}",),
    ),
    "the unspecified address": Row(
        _endpoints("0.0.0.0"),  # noqa: S104 - nothing is bound
        (f"EndpointSlice bad: endpoints[0].addresses[0]: '0.0.0.0' is the unspecified address; {PASSED}",),
    ),
    "a link-local address": Row(
        _endpoints("169.254.1.1"),
        (f"EndpointSlice bad: endpoints[0].addresses[0]: '169.254.1.1' is a link-local address; {PASSED}",),
    ),
    "several": Row(
        _endpoints("x", "10.244.2.300"),
        (
            f"EndpointSlice bad: endpoints[0].addresses[0]: 'x' is not an IP address; {PASSED}",
            f"EndpointSlice bad: endpoints[1].addresses[0]: '10.244.2.300' is not an IP address; {PASSED}",
        ),
    ),
    "an IPv4 address in IPv6's form is meant as one": Row(_endpoints("::ffff:10.244.2.8"), ()),
}


def _node(**parts: Any) -> str:
    return text({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}} | parts)


def _cidr(*cidrs: Any) -> str:
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "bad"}}
    return text(kind | {"spec": {"cidrs": list(cidrs)}})


NODES = {
    "an address of a Node that is none": Row(
        _node(
            status={"addresses": [{"type": "InternalIP", "address": "node-1"}, {"type": "Hostname", "address": "x"}]}
        ),
        ("Node node-1: status.addresses[0].address: 'node-1' is not an IP address; ignored",),
    ),
    "a range of pods that is none": Row(
        _node(spec={"podCIDRs": ["10.244.1.0"]}),
        ("Node node-1: spec.podCIDRs[0]: '10.244.1.0' is not a CIDR; ignored",),
    ),
    "a zone that is a number": Row(
        _node(metadata={"name": "node-1", "labels": {"topology.kubernetes.io/zone": 1}}),
        (
            (
                "Node node-1: metadata.labels['topology.kubernetes.io/zone']: 1 is a number, "
                "expected text; put it in quotes; skipped"
            ),
        ),
    ),
    "a ServiceCIDR that is none": Row(
        _cidr("10.96.0.0"), ("ServiceCIDR bad: spec.cidrs[0]: '10.96.0.0' is not a CIDR; skipped",)
    ),
    "a ServiceCIDR of everything would cut the node off": Row(
        _cidr("0.0.0.0/0"),
        (
            (
                "ServiceCIDR bad: spec.cidrs[0]: '0.0.0.0/0' contains loopback addresses; "
                "packets to unallocated cluster IPs are dropped; skipped"
            ),
        ),
    ),
    "a ServiceCIDR with a netmask": Row(
        _cidr("10.96.0.0/255.255.0.0"),
        ("ServiceCIDR bad: spec.cidrs[0]: '10.96.0.0/255.255.0.0' is not a CIDR; skipped",),
    ),
}


@parametrize_rows(LEFT_OUT)
def test_invalid_slice_is_skipped(tmp_path: Path, row: Row) -> None:
    seen = check_problems(tmp_path, row)
    assert "10.244.2." not in seen.elements


@parametrize_rows(PASSED_OVER)
def test_slice_without_usable_endpoints_is_reported(tmp_path: Path, row: Row) -> None:
    seen = check_problems(tmp_path, row)
    assert "10.244.2." not in seen.elements


@parametrize_rows(ENDPOINTS)
def test_invalid_endpoint_is_ignored(tmp_path: Path, row: Row) -> None:
    """The good endpoint of the same slice is used; the bad address stands nowhere."""
    seen = check_problems(tmp_path, row)
    assert '"10.244.2.7"' in seen.elements
    assert '"127.0.0.1"' not in seen.elements


@parametrize_rows(NODES)
def test_invalid_node_or_service_cidr_is_reported(tmp_path: Path, row: Row) -> None:
    check_problems(tmp_path, row)
