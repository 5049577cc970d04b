"""What becomes of packets in each of kube-proxy's modes and with knft, and why; on rules that nobody has loaded."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.trace.cluster import FLAGS, ends, trace, written

OUTSIDE, POD, NODE = "192.0.2.99", "10.244.1.11", "192.0.2.11"
KNFT, IPTABLES, IPVS = ("nftables",), ("iptables",), ("ipvs",)
RULES = KNFT + IPTABLES
ALL = RULES + IPVS
_OUTSIDE_PODS = "from outside the pod range"
_HAIRPIN = "hairpin: the endpoint connects to its own Service"
_CLUSTER = "externalTrafficPolicy Cluster"
_OF_NODE = "from the node itself, to which externalTrafficPolicy Local does not apply"
_GUARDED = "the source is not in loadBalancerSourceRanges"
_NOBODY = "no endpoints, or none on this node where the traffic policy is Local"


class Case(NamedTuple):
    """A packet, the Service port that it is for, and its ends: the share, what becomes of it, and why."""

    source: str
    to: str
    modes: tuple[str, ...]
    service: str | None
    ends: tuple[tuple[str, str, str], ...]


def _reaches(*whom: tuple[str, str]) -> tuple[tuple[str, str, str], ...]:
    share = "1" if len(whom) == 1 else f"1/{len(whom)}"
    return tuple((share, f"{address}:8080", why) for address, why in whom)


def _both(why: str) -> tuple[tuple[str, str, str], ...]:
    return _reaches(("10.244.1.11", why), ("10.244.2.11", why))


CASES = (
    Case(OUTSIDE, "10.96.0.10:80", ALL, "shop/open:http", _both(_OUTSIDE_PODS)),
    Case(POD, "10.96.0.10:80", ALL, "shop/open:http", _reaches(("10.244.1.11", _HAIRPIN), ("10.244.2.11", ""))),
    Case("10.244.2.77", "10.96.0.10:80", ALL, "shop/open:http", _both("")),
    Case(OUTSIDE, f"{NODE}:30010", ALL, "shop/open:http", _both(_CLUSTER)),
    Case(OUTSIDE, f"{NODE}:30011", RULES, "shop/elsewhere:http",
         (("1", "dropped", "no local endpoints, externalTrafficPolicy Local"),)),
    Case(POD, f"{NODE}:30011", RULES, "shop/elsewhere:http", _reaches(("10.244.2.12", ""))),
    Case(NODE, f"{NODE}:30011", RULES, "shop/elsewhere:http", _reaches(("10.244.2.12", _OF_NODE))),
    Case(OUTSIDE, f"{NODE}:30016", ALL, "shop/near:http", _reaches(("10.244.1.16", ""))),
    Case(POD, "10.96.0.12:80", RULES, "shop/inner:http",
         (("1", "dropped", "no local endpoints, internalTrafficPolicy Local"),)),
    Case(POD, "10.96.0.12:80", IPVS, "shop/inner:http", (("1", "rejected", _NOBODY),)),
    Case(POD, "10.96.0.13:80", RULES, "shop/closed:http", (("1", "rejected", "no endpoints"),)),
    Case(OUTSIDE, f"{NODE}:30013", RULES, "shop/closed:http", (("1", "rejected", "no endpoints"),)),
    Case(POD, "10.96.0.13:80", IPVS, "shop/closed:http", (("1", "rejected", _NOBODY),)),
    Case(OUTSIDE, "203.0.113.5:80", ALL, "shop/guarded:http", (("1", "dropped", _GUARDED),)),
    Case("198.51.100.9", "203.0.113.5:80", ALL, "shop/guarded:http", _both(_CLUSTER)),
    Case(POD, "10.96.0.10:81", KNFT, "shop/open", (("1", "rejected", "the cluster IP has no such port"),)),
    Case(POD, "10.96.0.10:81", IPTABLES, "shop/open", (("1", "delivered", ""),)),
    Case(POD, "10.96.0.10:81", IPVS, "shop/open",
         (("1", "rejected", "the address is on the node only for IPVS, and no virtual server has this port"),)),
    Case(POD, "10.96.7.7:80", KNFT, None, (("1", "dropped", "no Service has this cluster IP"),)),
    Case(POD, "198.51.100.77:80", ALL, None, (("1", "delivered", ""),)),
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("trace"))


@pytest.mark.parametrize(
    ("case", "mode"),
    [pytest.param(case, mode, id=f"{case.source} to {case.to} in {mode}") for case in CASES for mode in case.modes],
)
def test_the_end_and_its_reason(cluster: Path, case: Case, mode: str) -> None:
    """The same in every mode, but where the modes differ."""
    found = trace("-f", str(cluster), *FLAGS, "--backend", mode, "--from", case.source, "--to", case.to)
    seen = tuple((end["share"], end["endpoint"] or end["fate"], end["why"]) for end in ends(found))
    assert (found["service"], seen) == (case.service, case.ends)


@pytest.mark.parametrize("mode", ALL)
def test_all_traffic_is_masqueraded_because_of_the_flag(cluster: Path, mode: str) -> None:
    flags = ("-f", str(cluster), *FLAGS, "--masquerade-all", "--backend", mode)
    found = trace(*flags, "--from", "10.244.2.77", "--to", "10.96.0.10:80")
    assert {end["why"] for end in ends(found)} == {"--masquerade-all applies to all traffic to cluster IPs"}


@pytest.mark.parametrize("mode", ALL)
def test_an_interface_decides_only_where_rules_ask_for_it(cluster: Path, mode: str) -> None:
    """Where pods are told by it and none is said, both ways are there."""
    detect = ("--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "veth")
    packet = ("-f", str(cluster), *FLAGS, *detect, "--backend", mode, "--from", "10.244.2.77", "--to", "10.96.0.10:80")
    found = trace(*packet)
    ways = {tuple(way["when"]): {end["why"] for end in way["ends"]} for way in found["ways"]}
    assert ways == {
        ("the input interface is veth*",): {""},
        ("the input interface is not veth*",): {"not from a pod's interface"},
    }
    assert {end["source"] for end in ends(trace(*packet, "--in-interface", "veth7"))} == {"kept"}
    assert {end["source"] for end in ends(trace(*packet, "--in-interface", "eth0"))} == {"masqueraded"}


@pytest.mark.parametrize("mode", ALL)
def test_a_client_that_affinity_remembers_goes_where_it_went(cluster: Path, mode: str) -> None:
    packet = ("-f", str(cluster), *FLAGS, "--backend", mode, "--from", "10.244.2.77", "--to", "10.96.0.15:80")
    assert [end["share"] for end in ends(trace(*packet))] == ["1/2", "1/2"]
    found = trace(*packet, "--remembered", "10.244.2.11:8080")
    (end,) = ends(found)
    assert (found["client"], end["endpoint"], end["seconds"]) == (
        "was sent to 10.244.2.11:8080",
        "10.244.2.11:8080",
        10800,
    )
