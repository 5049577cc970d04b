"""Outcomes of packets, and the reasons, on rendered rules of knft and of kube-proxy's modes iptables and ipvs."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.traced_cluster import FLAGS, OBJECTS, ends, invoke_trace, trace, write_manifests

OUTSIDE, POD, NODE = "192.0.2.99", "10.244.1.11", "192.0.2.11"
KNFT, IPTABLES, IPVS = ("nftables",), ("iptables",), ("ipvs",)
RULES = KNFT + IPTABLES
ALL = RULES + IPVS
_OUTSIDE_PODS = "from outside the pod range"
_HAIRPIN = "hairpin: the endpoint connects to its own Service"
_CLUSTER = "externalTrafficPolicy Cluster"
_OF_NODE = "from the node itself, to which externalTrafficPolicy Local does not apply"
_DENIED_SOURCE = "the source is not in loadBalancerSourceRanges"
_NO_ENDPOINTS = "no endpoints, or none on this node where the traffic policy is Local"


class Case(NamedTuple):
    """A packet, its Service port, and its ends: share, endpoint or outcome, and reason."""

    source: str
    to: str
    modes: tuple[str, ...]
    service: str | None
    ends: tuple[tuple[str, str, str], ...]


def _reaches(*endpoints: tuple[str, str]) -> tuple[tuple[str, str, str], ...]:
    share = "1" if len(endpoints) == 1 else f"1/{len(endpoints)}"
    return tuple((share, f"{address}:8080", why) for address, why in endpoints)


def _reaches_both(why: str) -> tuple[tuple[str, str, str], ...]:
    return _reaches(("10.244.1.11", why), ("10.244.2.11", why))


CASES = (
    Case(OUTSIDE, "10.96.0.10:80", ALL, "shop/open:http", _reaches_both(_OUTSIDE_PODS)),
    Case(POD, "10.96.0.10:80", ALL, "shop/open:http", _reaches(("10.244.1.11", _HAIRPIN), ("10.244.2.11", ""))),
    Case("10.244.2.77", "10.96.0.10:80", ALL, "shop/open:http", _reaches_both("")),
    Case(OUTSIDE, f"{NODE}:30010", ALL, "shop/open:http", _reaches_both(_CLUSTER)),
    Case(OUTSIDE, f"{NODE}:30011", RULES, "shop/elsewhere:http",
         (("1", "dropped", "no local endpoints, externalTrafficPolicy Local"),)),
    Case(POD, f"{NODE}:30011", RULES, "shop/elsewhere:http", _reaches(("10.244.2.12", ""))),
    Case(NODE, f"{NODE}:30011", RULES, "shop/elsewhere:http", _reaches(("10.244.2.12", _OF_NODE))),
    Case(OUTSIDE, f"{NODE}:30016", ALL, "shop/near:http", _reaches(("10.244.1.16", ""))),
    Case(POD, "10.96.0.12:80", RULES, "shop/inner:http",
         (("1", "dropped", "no local endpoints, internalTrafficPolicy Local"),)),
    Case(POD, "10.96.0.12:80", IPVS, "shop/inner:http", (("1", "rejected", _NO_ENDPOINTS),)),
    Case(POD, "10.96.0.13:80", RULES, "shop/closed:http", (("1", "rejected", "no endpoints"),)),
    Case(OUTSIDE, f"{NODE}:30013", RULES, "shop/closed:http", (("1", "rejected", "no endpoints"),)),
    Case(POD, "10.96.0.13:80", IPVS, "shop/closed:http", (("1", "rejected", _NO_ENDPOINTS),)),
    Case(OUTSIDE, "203.0.113.5:80", ALL, "shop/guarded:http", (("1", "dropped", _DENIED_SOURCE),)),
    Case("198.51.100.9", "203.0.113.5:80", ALL, "shop/guarded:http", _reaches_both(_CLUSTER)),
    Case(POD, "10.96.0.10:81", KNFT, "shop/open", (("1", "rejected", "the cluster IP has no such port"),)),
    Case(POD, "10.96.0.10:81", IPTABLES, "shop/open", (("1", "delivered", ""),)),
    Case(POD, "10.96.0.10:81", IPVS, "shop/open",
         (("1", "rejected", "the address is on kube-ipvs0, and no virtual server has this port"),)),
    Case(POD, "10.96.7.7:80", KNFT, None, (("1", "dropped", "no Service has this cluster IP"),)),
    Case(POD, "198.51.100.77:80", ALL, None, (("1", "delivered", ""),)),
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_manifests(tmp_path_factory.mktemp("trace"))


@pytest.mark.parametrize(
    ("case", "mode"),
    [pytest.param(case, mode, id=f"{case.source} to {case.to} in {mode}") for case in CASES for mode in case.modes],
)
def test_outcome_and_reason_of_each_packet(cluster: Path, case: Case, mode: str) -> None:
    """Cases list the modes to which they apply."""
    found = trace("-f", str(cluster), *FLAGS, "--backend", mode, "--from", case.source, "--to", case.to)
    seen = tuple((end["share"], end["endpoint"] or end["fate"], end["why"]) for end in ends(found))
    assert (found["service"], seen) == (case.service, case.ends)


@pytest.mark.parametrize("mode", ALL)
def test_masquerade_all_is_the_reason_if_it_is_set(cluster: Path, mode: str) -> None:
    flags = ("-f", str(cluster), *FLAGS, "--masquerade-all", "--backend", mode)
    found = trace(*flags, "--from", "10.244.2.77", "--to", "10.96.0.10:80")
    assert {end["why"] for end in ends(found)} == {"--masquerade-all applies to all traffic to cluster IPs"}


@pytest.mark.parametrize(
    ("mode", "flags", "fate"),
    [
        ("nftables", (), "delivered"),
        ("nftables", ("--drop-invalid-packets",), "dropped"),
        ("iptables", (), "dropped"),
        ("iptables", ("--conntrack-tcp-be-liberal",), "delivered"),
        ("ipvs", ("--drop-invalid-packets",), "delivered"),
    ],
)
def test_invalid_packets_are_dropped_by_mode_iptables_and_by_an_option_of_knft(
    cluster: Path, mode: str, flags: tuple[str, ...], fate: str
) -> None:
    """The packet is the reply of an endpoint to a client."""
    packet = ("--from", "10.244.2.77", "--to", f"{OUTSIDE}:40000", "--state", "invalid")
    (end,) = ends(trace("-f", str(cluster), *FLAGS, *flags, "--backend", mode, *packet))
    reason = "the packet's conntrack state is invalid" if fate == "dropped" else ""
    assert (end["fate"], end["why"]) == (fate, reason)
    opened = ends(trace("-f", str(cluster), *FLAGS, *flags, "--backend", mode, *packet[:-2]))
    assert [end["fate"] for end in opened] == ["delivered"]


@pytest.mark.parametrize("mode", ALL)
def test_unknown_input_interface_gives_one_path_per_possibility(cluster: Path, mode: str) -> None:
    """With local mode InterfaceNamePrefix the interface decides; without --in-interface, the trace has both paths."""
    detect = ("--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "veth")
    packet = ("-f", str(cluster), *FLAGS, *detect, "--backend", mode, "--from", "10.244.2.77", "--to", "10.96.0.10:80")
    found = trace(*packet)
    paths = {tuple(path["when"]): {end["why"] for end in path["ends"]} for path in found["ways"]}
    assert paths == {
        ("the input interface is veth*",): {""},
        ("the input interface is not veth*",): {"not from a pod's interface"},
    }
    assert {end["source"] for end in ends(trace(*packet, "--in-interface", "veth7"))} == {"kept"}
    assert {end["source"] for end in ends(trace(*packet, "--in-interface", "eth0"))} == {"masqueraded"}


@pytest.mark.parametrize("mode", ALL)
def test_remembered_client_reaches_its_endpoint(cluster: Path, mode: str) -> None:
    packet = ("-f", str(cluster), *FLAGS, "--backend", mode, "--from", "10.244.2.77", "--to", "10.96.0.15:80")
    assert [end["share"] for end in ends(trace(*packet))] == ["1/2", "1/2"]
    found = trace(*packet, "--remembered", "10.244.2.11:8080")
    (end,) = ends(found)
    assert (found["client"], end["endpoint"], end["seconds"]) == (
        "was sent to 10.244.2.11:8080",
        "10.244.2.11:8080",
        10800,
    )


@pytest.mark.parametrize(("policy", "chain"), [("Cluster", "reset-or-reject-chain"), ("Local", "reset-or-drop")])
def test_chain_of_a_draining_service_without_endpoints_is_shown(tmp_path: Path, policy: str, chain: str) -> None:
    """A new connection is rejected or dropped as without the annotation."""
    ports = [{"name": "http", "port": 80, "nodePort": 30080}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "annotations": {"knft.dev/drain": "reset"}},
        "spec": {"clusterIP": "10.96.0.30", "type": "NodePort", "ports": ports, "externalTrafficPolicy": policy},
    }
    items: list[Any] = list(OBJECTS)
    node = next(item for item in items if item["kind"] == "Node")
    slice_elsewhere = next(item for item in items if item["kind"] == "EndpointSlice" and "elsewhere" in str(item))
    labels = {"kubernetes.io/service-name": "web"}
    slice_of_web = {**slice_elsewhere, "metadata": {**slice_elsewhere["metadata"], "labels": labels}}
    manifests = tmp_path / "objects.yaml"
    manifests.write_text(yaml.safe_dump_all([node, service, *([slice_of_web] if policy == "Local" else [])]))
    packet = ("--from", "198.51.100.7", "--to", "192.0.2.11:30080")
    text = invoke_trace("-f", str(manifests), *FLAGS, *packet).stdout
    rejected, dropped = "is rejected: no endpoints", "is dropped: no local endpoints, externalTrafficPolicy Local"
    assert text.startswith(f"the packet {rejected if policy == 'Cluster' else dropped}")
    assert f"ip knft {chain}: " in text
