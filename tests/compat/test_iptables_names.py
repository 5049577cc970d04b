"""Tests of chain names with those of upstream's tests (docs/behaviour/iptables.md#chain-names)."""

import pytest

from knft.model.names import ServicePortName
from knft_compat.iptables.names import endpoint_chain, is_service_port_chain, port_chains
from tests.support.kube_objects import parametrize_cases

SERVICE_PORTS = {
    "XPGD46QRK7WJZT7O": ServicePortName("ns1", "svc1", "p80", "TCP"),
    "GNZBNJ2PO5MGZ6GT": ServicePortName("ns2", "svc2", "p80", "TCP"),
    "X27LE4BHSL4DOUIK": ServicePortName("ns3", "svc3", "p80", "TCP"),
    "4SW47YFZTEDKD3PK": ServicePortName("ns4", "svc4", "p80", "TCP"),
    "NUKIZ6OKUXPJNT4C": ServicePortName("ns5", "svc5", "p80", "TCP"),
}


@pytest.mark.parametrize("hashed", SERVICE_PORTS)
def test_chains_of_one_service_port_share_its_hash(hashed: str) -> None:
    chains = port_chains(SERVICE_PORTS[hashed])
    assert chains.cluster == f"KUBE-SVC-{hashed}"
    assert chains.local == f"KUBE-SVL-{hashed}"
    assert chains.external == f"KUBE-EXT-{hashed}"
    assert chains.firewall == f"KUBE-FW-{hashed}"


@parametrize_cases(
    {
        "first": ("XPGD46QRK7WJZT7O", "10.180.0.1:80", "KUBE-SEP-SXIVWICOYRO3J4NJ"),
        "second": ("GNZBNJ2PO5MGZ6GT", "10.180.0.2:80", "KUBE-SEP-RS4RBKLTHTF2IUXJ"),
    }
)
def test_each_endpoint_has_its_own_hash(case: tuple[str, str, str]) -> None:
    hashed, key, expected = case
    assert endpoint_chain(SERVICE_PORTS[hashed], key) == expected


def test_hash_includes_the_protocol() -> None:
    names = [ServicePortName("ns1", "dns", "", protocol) for protocol in ("TCP", "UDP", "SCTP")]
    assert len({port_chains(name).cluster for name in names}) == 3


@pytest.mark.parametrize("prefix", ["KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-"])
def test_service_port_chains_can_become_stale(prefix: str) -> None:
    assert is_service_port_chain(f"{prefix}XPGD46QRK7WJZT7O")
    assert not is_service_port_chain(f"MY-{prefix}XPGD46QRK7WJZT7O")


@pytest.mark.parametrize("chain", ["KUBE-SERVICES", "KUBE-MARK-MASQ", "KUBE-PROXY-FIREWALL", "KUBE-FIREWALL"])
def test_other_chains_never_become_stale(chain: str) -> None:
    assert not is_service_port_chain(chain)
