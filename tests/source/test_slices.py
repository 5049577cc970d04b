"""Invalid EndpointSlices, Nodes and ServiceCIDRs: invalid parts are ignored; invalid objects are skipped."""

from pathlib import Path
from typing import Any

from tests.support.bad_manifests import ManifestCase, check_problems, endpoint_slice, text
from tests.support.kube_objects import parametrize_cases

VALID_ENDPOINT = {"addresses": ["10.244.2.7"]}
IGNORED = "the endpoint is ignored"
NO_SERVICE = "it is missing, so the slice belongs to no Service; ignored"


def _slice(**fields: Any) -> str:
    return text(endpoint_slice("bad", **fields))


def _without(field: str) -> str:
    return text({key: value for key, value in endpoint_slice("bad").items() if key != field})


def _endpoints(*addresses: Any) -> str:
    return _slice(endpoints=[*({"addresses": [item]} for item in addresses), VALID_ENDPOINT])


LABEL = "metadata.labels['kubernetes.io/service-name']"

SKIPPED = {
    "port 70000": ManifestCase(
        _slice(ports=[{"name": "", "port": 70000}]),
        ("EndpointSlice bad: ports[0].port: 70000 is not between 0 and 65535; skipped",),
    ),
    "unknown protocol": ManifestCase(
        _slice(ports=[{"name": "", "port": 80, "protocol": "QUIC"}]),
        ("EndpointSlice bad: ports[0].protocol: 'QUIC' is not SCTP, TCP or UDP; skipped",),
    ),
    "no address type": ManifestCase(
        _without("addressType"), ("EndpointSlice bad: addressType: it is missing; skipped",)
    ),
    "unknown address type": ManifestCase(
        _slice(addressType="IPv5"), ("EndpointSlice bad: addressType: 'IPv5' is not FQDN, IPv4 or IPv6; skipped",)
    ),
    "label is a number": ManifestCase(
        _slice(metadata={"name": "bad", "labels": {"kubernetes.io/service-name": 7}}),
        (f"EndpointSlice bad: {LABEL}: 7 is a number, expected text; put it in quotes; skipped",),
    ),
    "endpoint is text": ManifestCase(
        _slice(endpoints=["10.244.2.7"]),
        ("EndpointSlice bad: endpoints[0]: '10.244.2.7' is text, expected a mapping; skipped",),
    ),
    "addresses is text": ManifestCase(
        _slice(endpoints=[VALID_ENDPOINT, {"addresses": "10.244.2.8"}]),
        (("EndpointSlice bad: endpoints[1].addresses: '10.244.2.8' is text, expected a list; skipped"),),
    ),
    "condition is text": ManifestCase(
        _slice(endpoints=[{"addresses": ["10.244.2.8"], "conditions": {"ready": "yes"}}]),
        ("EndpointSlice bad: endpoints[0].conditions.ready: 'yes' is not true or false; skipped",),
    ),
}

UNUSABLE = {
    "no labels": ManifestCase(_slice(metadata={"name": "bad"}), (f"EndpointSlice bad: {LABEL}: {NO_SERVICE}",)),
    "no Service label": ManifestCase(
        _slice(metadata={"name": "bad", "labels": {"app": "web"}}), (f"EndpointSlice bad: {LABEL}: {NO_SERVICE}",)
    ),
    "empty Service label": ManifestCase(
        _slice(metadata={"name": "bad", "labels": {"kubernetes.io/service-name": ""}}),
        (f"EndpointSlice bad: {LABEL}: {NO_SERVICE}",),
    ),
    "Service label with nft syntax": ManifestCase(
        _slice(metadata={"name": "bad", "labels": {"kubernetes.io/service-name": '"} ; flush ruleset'}}), ()
    ),
    "type FQDN": ManifestCase(
        _slice(addressType="FQDN", endpoints=[{"addresses": ["web.example"]}]),
        ("EndpointSlice bad: addressType: Service proxies do not serve FQDN endpoints; the slice is ignored",),
    ),
    "null port name": ManifestCase(
        _slice(ports=[{"name": None, "port": 80}]),
        ("EndpointSlice bad: ports[0].name: it is missing or null; the port is ignored",),
    ),
    "missing port name": ManifestCase(
        _slice(ports=[{"port": 80}]),
        ("EndpointSlice bad: ports[0].name: it is missing or null; the port is ignored",),
    ),
    "null port": ManifestCase(
        _slice(ports=[{"name": "", "port": None}]),
        ("EndpointSlice bad: ports[0].port: it is missing or null, which means all ports; the port is ignored",),
    ),
    "port 0": ManifestCase(
        _slice(ports=[{"name": "", "port": 0}]),
        ("EndpointSlice bad: ports[0].port: it is 0; the port is ignored",),
    ),
    "ports: null": ManifestCase(_slice(ports=None), ()),
    "endpoints: null": ManifestCase(_slice(endpoints=None), ()),
}

ENDPOINTS = {
    "empty address list": ManifestCase(
        _slice(endpoints=[{"addresses": []}, VALID_ENDPOINT]),
        (f"EndpointSlice bad: endpoints[0].addresses: it is empty; {IGNORED}",),
    ),
    "addresses: null": ManifestCase(
        _slice(endpoints=[{"addresses": None}, VALID_ENDPOINT]),
        (f"EndpointSlice bad: endpoints[0].addresses: it is empty; {IGNORED}",),
    ),
    "no addresses": ManifestCase(
        _slice(endpoints=[{}, VALID_ENDPOINT]), (f"EndpointSlice bad: endpoints[0].addresses: it is empty; {IGNORED}",)
    ),
    "invalid address": ManifestCase(
        _endpoints("web-0"), (f"EndpointSlice bad: endpoints[0].addresses[0]: 'web-0' is not an IP address; {IGNORED}",)
    ),
    "address of the other family": ManifestCase(
        _endpoints("fd00::1"),
        (f"EndpointSlice bad: endpoints[0].addresses[0]: 'fd00::1' is not an IPv4 address; {IGNORED}",),
    ),
    "loopback address": ManifestCase(
        _endpoints("127.0.0.1"),
        (f"EndpointSlice bad: endpoints[0].addresses[0]: '127.0.0.1' is a loopback address; {IGNORED}",),
    ),
    "unspecified address": ManifestCase(
        _endpoints("0.0.0.0"),  # noqa: S104 - nothing is bound
        (f"EndpointSlice bad: endpoints[0].addresses[0]: '0.0.0.0' is the unspecified address; {IGNORED}",),
    ),
    "link-local address": ManifestCase(
        _endpoints("169.254.1.1"),
        (f"EndpointSlice bad: endpoints[0].addresses[0]: '169.254.1.1' is a link-local address; {IGNORED}",),
    ),
    "several invalid addresses": ManifestCase(
        _endpoints("x", "10.244.2.300"),
        (
            f"EndpointSlice bad: endpoints[0].addresses[0]: 'x' is not an IP address; {IGNORED}",
            f"EndpointSlice bad: endpoints[1].addresses[0]: '10.244.2.300' is not an IP address; {IGNORED}",
        ),
    ),
    "IPv4-mapped IPv6 address counts as IPv4": ManifestCase(_endpoints("::ffff:10.244.2.8"), ()),
}


def _node(**parts: Any) -> str:
    return text({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}} | parts)


def _cidr(*cidrs: Any) -> str:
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "bad"}}
    return text(kind | {"spec": {"cidrs": list(cidrs)}})


NODES = {
    "invalid Node address": ManifestCase(
        _node(
            status={"addresses": [{"type": "InternalIP", "address": "node-1"}, {"type": "Hostname", "address": "x"}]}
        ),
        ("Node node-1: status.addresses[0].address: 'node-1' is not an IP address; ignored",),
    ),
    "invalid pod CIDR": ManifestCase(
        _node(spec={"podCIDRs": ["10.244.1.0"]}),
        ("Node node-1: spec.podCIDRs[0]: '10.244.1.0' is not a CIDR; ignored",),
    ),
    "zone is a number": ManifestCase(
        _node(metadata={"name": "node-1", "labels": {"topology.kubernetes.io/zone": 1}}),
        (
            (
                "Node node-1: metadata.labels['topology.kubernetes.io/zone']: 1 is a number, "
                "expected text; put it in quotes; skipped"
            ),
        ),
    ),
    "ServiceCIDR without a prefix length": ManifestCase(
        _cidr("10.96.0.0"), ("ServiceCIDR bad: spec.cidrs[0]: '10.96.0.0' is not a CIDR; skipped",)
    ),
    "ServiceCIDR that contains loopback addresses": ManifestCase(
        _cidr("0.0.0.0/0"),
        (
            (
                "ServiceCIDR bad: spec.cidrs[0]: '0.0.0.0/0' contains loopback addresses, "
                "so knft would drop packets to them; skipped"
            ),
        ),
    ),
    "ServiceCIDR with a netmask": ManifestCase(
        _cidr("10.96.0.0/255.255.0.0"),
        ("ServiceCIDR bad: spec.cidrs[0]: '10.96.0.0/255.255.0.0' is not a CIDR; skipped",),
    ),
}


@parametrize_cases(SKIPPED)
def test_invalid_slice_is_skipped(tmp_path: Path, case: ManifestCase) -> None:
    result = check_problems(tmp_path, case)
    assert "10.244.2." not in result.elements


@parametrize_cases(UNUSABLE)
def test_slice_without_usable_endpoints_is_reported(tmp_path: Path, case: ManifestCase) -> None:
    result = check_problems(tmp_path, case)
    assert "10.244.2." not in result.elements


@parametrize_cases(ENDPOINTS)
def test_invalid_endpoint_is_ignored(tmp_path: Path, case: ManifestCase) -> None:
    """The valid endpoint of the same slice is used."""
    result = check_problems(tmp_path, case)
    assert '"10.244.2.7"' in result.elements
    assert '"127.0.0.1"' not in result.elements


@parametrize_cases(NODES)
def test_invalid_node_or_service_cidr_is_reported(tmp_path: Path, case: ManifestCase) -> None:
    check_problems(tmp_path, case)
