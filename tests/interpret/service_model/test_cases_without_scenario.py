"""Cases of the model that are documented in docs/behaviour, but that no scenario verifies against a kernel."""

from typing import Any, Literal

import pytest

from tests.interpret.service_model.random_clusters import NODE, NODE_ADDRESSES, POD_CIDRS, SERVICE_CIDRS
from tests.interpret.service_model.service_model import Mode, NotModelledError, Outcome, Packet, Settings, outcome

BOTH: tuple[Mode, ...] = ("nftables", "iptables")
SETTINGS = Settings(addresses=NODE_ADDRESSES, cluster_cidrs=POD_CIDRS, service_cidrs=SERVICE_CIDRS)
LOCAL_ENDPOINT, REMOTE_ENDPOINT = (
    {"addresses": ["10.244.1.11"], "nodeName": NODE},
    {"addresses": ["10.244.2.11"], "nodeName": "node-2"},
)
TERMINATING = {"ready": False, "serving": True, "terminating": True}


def _service(name: str = "shop", number: int = 10, **more: Any) -> dict[str, Any]:
    spec = {"clusterIP": f"10.96.0.{number}", "ports": [{"port": 80, "protocol": "TCP"}]}
    return {"kind": "Service", "metadata": {"name": name}, "spec": spec | more}


def _slice(*endpoints: dict[str, Any], service: str = "shop") -> dict[str, Any]:
    return {
        "kind": "EndpointSlice",
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": list(endpoints),
    }


def _outcome(
    objects: list[dict[str, Any]],
    mode: Mode,
    source: str,
    to: str,
    *,
    origin: Literal["node", "pod", "outside"] = "outside",
    settings: Settings = SETTINGS,
) -> Outcome:
    address, _, port = to.rpartition(":")
    packet = Packet(family=4, origin=origin, source=source, destination=address, protocol="tcp", port=int(port))
    return outcome(objects, NODE, settings, packet, mode)


@pytest.mark.parametrize(("mode", "is_masqueraded"), [("nftables", False), ("iptables", True)])
def test_hairpin_of_another_node_is_masqueraded_in_iptables_mode_only(mode: Mode, *, is_masqueraded: bool) -> None:
    """Nftables mode masquerades hairpins of local endpoints, iptables mode those of all endpoints."""
    found = _outcome([_service(), _slice(REMOTE_ENDPOINT)], mode, "10.244.2.11", "10.96.0.10:80")
    assert bool(found.masqueraded) == is_masqueraded


@pytest.mark.parametrize(("mode", "is_masqueraded"), [("nftables", True), ("iptables", False)])
def test_external_ip_that_is_also_a_cluster_ip_is_masqueraded_in_nftables_mode_only(
    mode: Mode, *, is_masqueraded: bool
) -> None:
    """Nftables mode compares the address alone, iptables mode the port too."""
    near: dict[str, Any] = {"externalIPs": ["10.96.0.11"], "type": "NodePort", "externalTrafficPolicy": "Local"}
    other = _service("other", 11, ports=[{"port": 81, "protocol": "TCP"}])
    found = _outcome([_service(**near), _slice(LOCAL_ENDPOINT), other], mode, "198.51.100.7", "10.96.0.11:80")
    assert found.verdict == "delivered"
    assert bool(found.masqueraded) == is_masqueraded


@pytest.mark.parametrize(("mode", "verdict"), [("nftables", "untouched"), ("iptables", "dropped")])
def test_iptables_mode_drops_packets_to_loopback_from_other_addresses(mode: Mode, verdict: str) -> None:
    """Nftables mode has no such rule (docs/behaviour/iptables.md#restore-input)."""
    assert _outcome([], mode, NODE_ADDRESSES[0], "127.0.0.1:9", origin="node").verdict == verdict


@pytest.mark.parametrize(
    ("origin", "source", "verdict"), [("pod", "10.244.1.12", "untouched"), ("node", "", "dropped")]
)
def test_own_address_in_the_service_range(origin: Literal["node", "pod"], source: str, verdict: str) -> None:
    """Packets that are delivered locally do not traverse the check (docs/behaviour/nftables.md#base-chains)."""
    own = Settings(addresses=("10.96.0.77",), cluster_cidrs=POD_CIDRS, service_cidrs=SERVICE_CIDRS)
    found = _outcome([], "nftables", source or "10.96.0.77", "10.96.0.77:53", origin=origin, settings=own)
    assert found.verdict == verdict


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("order", [1, -1])
def test_endpoint_ready_in_one_slice_and_terminating_in_another_is_ready(mode: Mode, order: int) -> None:
    """If one slice has the endpoint as ready and another as terminating, it is ready, whatever the order."""
    pieces = [_slice(LOCAL_ENDPOINT), _slice(LOCAL_ENDPOINT | {"conditions": TERMINATING}, REMOTE_ENDPOINT)][::order]
    found = _outcome([_service(), *pieces], mode, "10.244.1.12", "10.96.0.10:80", origin="pod")
    assert set(found.targets) == {"10.244.1.11:8080", "10.244.2.11:8080"}


@pytest.mark.parametrize("mode", BOTH)
def test_external_name_service_with_a_cluster_ip_is_not_served(mode: Mode) -> None:
    """Services of type ExternalName are ignored (docs/behaviour/tracking.md#service-ports)."""
    objects = [_service(type="ExternalName", externalIPs=["203.0.113.1"]), _slice(LOCAL_ENDPOINT)]
    assert _outcome(objects, mode, "198.51.100.7", "203.0.113.1:80").verdict == "untouched"


@pytest.mark.parametrize("mode", BOTH)
def test_only_the_first_cluster_cidr_applies(mode: Mode) -> None:
    """A source in the second CIDR is masqueraded (docs/behaviour/configuration.md#local-traffic)."""
    settings = Settings(addresses=NODE_ADDRESSES, cluster_cidrs=("10.244.0.0/16", "172.16.0.0/12"))
    found = _outcome([_service(), _slice(LOCAL_ENDPOINT)], mode, "172.16.0.1", "10.96.0.10:80", settings=settings)
    assert found.masqueraded


def test_primary_address_is_an_internal_address() -> None:
    """An ExternalIP that is listed first does not accept NodePorts (docs/behaviour/configuration.md#node-addresses)."""
    listed = [{"type": "ExternalIP", "address": "192.0.2.99"}, {"type": "InternalIP", "address": NODE_ADDRESSES[0]}]
    node = {"kind": "Node", "metadata": {"name": NODE}, "status": {"addresses": listed}}
    settings = Settings(addresses=("192.0.2.99", *NODE_ADDRESSES))
    ports = [{"port": 80, "nodePort": 30000}]
    objects = [_service(type="NodePort", ports=ports), _slice(LOCAL_ENDPOINT), node]
    verdicts = [
        _outcome(objects, "nftables", "198.51.100.7", f"{own}:30000", settings=settings).verdict
        for own in settings.addresses[:2]
    ]
    assert verdicts == ["untouched", "delivered"]


@pytest.mark.parametrize("mode", BOTH)
def test_endpoint_that_is_a_frontend_is_not_modelled(mode: Mode) -> None:
    objects = [
        _service(),
        _slice(LOCAL_ENDPOINT),
        _service("other", 11, externalIPs=["10.244.1.11"], ports=[{"port": 8080}]),
    ]
    with pytest.raises(NotModelledError, match="a frontend itself"):
        _outcome(objects, mode, "10.244.1.12", "10.96.0.10:80", origin="pod")
