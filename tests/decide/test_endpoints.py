"""Selection of endpoints by kind of traffic (docs/behaviour/endpoints.md)."""

from typing import NamedTuple

import pytest

from knft.decide.endpoints import categorize_endpoints
from knft.model.plan import CategorizedEndpoints
from knft.model.service_port import ServicePort
from tests.support.kube_objects import NODE, endpoints, parametrize_cases

CLUSTER = ServicePort("10.96.0.1", 80, "TCP")
NODE_PORT = ServicePort("10.96.0.1", 80, "TCP", node_port=30080)
INTERNAL_LOCAL = ServicePort("10.96.0.1", 80, "TCP", internal_policy_local=True)
INTERNAL_LOCAL_NODE_PORT = ServicePort("10.96.0.1", 80, "TCP", node_port=30080, internal_policy_local=True)
EXTERNAL_LOCAL = ServicePort("10.96.0.1", 80, "TCP", node_port=30080, external_policy_local=True)
BOTH_LOCAL = ServicePort(
    "10.96.0.1", 80, "TCP", node_port=30080, internal_policy_local=True, external_policy_local=True
)
UNREACHABLE_EXTERNAL_LOCAL = ServicePort("10.96.0.1", 80, "TCP", external_policy_local=True)


class SelectionCase(NamedTuple):
    """A Service port, its endpoints in the notation of ``kube_objects.endpoints``, and the last octets of each pool."""

    port: ServicePort
    given: str
    cluster: str = ""
    local: str = ""
    reachable: str = ""
    has_any: bool = True
    zone: str = "zone-a"


HINTED = ".3 a LR, .4 b LR, .5 c R, .6 a R"
ALL_FOUR = ".3 .4 .5 .6"
SEVERAL_ZONES = ".3 a R, .4 b c R, .5 b c d R, .6 c R"

HINTS = {
    "hints and external policy Local": SelectionCase(EXTERNAL_LOCAL, HINTED, ".3 .6", ".3 .4", ".3 .4 .6"),
    "hints and internal policy Local": SelectionCase(INTERNAL_LOCAL_NODE_PORT, HINTED, ".3 .6", ".3 .4", ".3 .4 .6"),
    "hints and both policies Local": SelectionCase(BOTH_LOCAL, HINTED, ".3 .6", ".3 .4", ".3 .4 .6"),
    "node without a zone label": SelectionCase(CLUSTER, HINTED, ALL_FOUR, "", ALL_FOUR, zone=""),
    "node in a zone without hints": SelectionCase(CLUSTER, HINTED, ALL_FOUR, "", ALL_FOUR, zone="zone-x"),
    "unready endpoint with a hint to this zone": SelectionCase(CLUSTER, ".3 a R, .4 b R, .5 c R, .6 a", ".3", "", ".3"),
    "only unready endpoints have hints to this zone": SelectionCase(
        CLUSTER, ".3 a, .4 b R, .5 c R, .6 a", ".4 .5", "", ".4 .5"
    ),
    "one ready endpoint lacks a hint": SelectionCase(CLUSTER, ".3 a R, .4 b R, .5 R, .6 a R", ALL_FOUR, "", ALL_FOUR),
    "endpoints with hints to several zones": SelectionCase(
        CLUSTER, SEVERAL_ZONES, ".4 .5 .6", "", ".4 .5 .6", zone="zone-c"
    ),
    "hints and policy Local select different endpoints": SelectionCase(
        EXTERNAL_LOCAL, ".0 a R, .1 a LR, .2 b LR, .3 b R", ".0 .1", ".1 .2", ".0 .1 .2"
    ),
    "unready endpoint without hints, all ready ones have hints": SelectionCase(
        CLUSTER, ".3 a R, .4 b R, .5", ".3", "", ".3"
    ),
    "ready endpoint with empty hints": SelectionCase(CLUSTER, ".3 a R, .4 R", ".3 .4", "", ".3 .4"),
    "no ready endpoints, hints are ignored": SelectionCase(CLUSTER, ".3 a ST, .4 b ST", ".3 .4", "", ".3 .4"),
}

POLICIES = {
    "internal Local, no endpoints": SelectionCase(INTERNAL_LOCAL, "", has_any=False),
    "internal Local, all remote": SelectionCase(INTERNAL_LOCAL, ".0 R, .1 R"),
    "internal Local, all local": SelectionCase(INTERNAL_LOCAL, ".0 LR, .1 LR", "", ".0 .1", ".0 .1"),
    "internal Local, some local": SelectionCase(INTERNAL_LOCAL, ".0 R, .1 LR", "", ".1", ".1"),
    "internal Local, without external access": SelectionCase(INTERNAL_LOCAL, ".0 R, .1 LRS", "", ".1", ".1"),
    "Cluster, no endpoints": SelectionCase(CLUSTER, "", has_any=False),
    "Cluster, none ready": SelectionCase(CLUSTER, ".0, .1", has_any=False),
    "Cluster, some ready": SelectionCase(CLUSTER, ".0 R, .1", ".0", "", ".0"),
    "Cluster, all terminating and serving": SelectionCase(CLUSTER, ".0 ST, .1 ST", ".0 .1", "", ".0 .1"),
    "internal Local, external Cluster": SelectionCase(INTERNAL_LOCAL_NODE_PORT, ".0 LR, .1 R", ".0 .1", ".0", ".0 .1"),
    "internal Cluster, external Local": SelectionCase(EXTERNAL_LOCAL, ".0 LR, .1 R", ".0 .1", ".0", ".0 .1"),
    "both Local, one local": SelectionCase(BOTH_LOCAL, ".0 LR, .1 R", ".0 .1", ".0", ".0 .1"),
    "both Local, all remote": SelectionCase(BOTH_LOCAL, ".0 R, .1 R", ".0 .1", "", ".0 .1"),
    "both Local, remote and terminating": SelectionCase(BOTH_LOCAL, ".0 ST, .1 ST", ".0 .1", "", ".0 .1"),
    "internal Cluster, external Local, terminating local": SelectionCase(
        EXTERNAL_LOCAL, ".0 R, .1 LT, .2 LST, .3 ST", ".0", ".2", ".0 .2"
    ),
    "external Local, without external access": SelectionCase(
        UNREACHABLE_EXTERNAL_LOCAL, ".0 R, .1 LR", ".0 .1", "", ".0 .1"
    ),
}

NODE_HINTS = {
    "all endpoints have node hints, one of them to this node": SelectionCase(
        CLUSTER, ".3 @node-1 R, .4 @node-2 R", ".3", "", ".3"
    ),
    "endpoints with hints to several nodes": SelectionCase(
        CLUSTER, ".3 @node-2 R, .4 @node-2 @node-1 R, .5 @node-1 R", ".4 .5", "", ".4 .5"
    ),
    "node hints take precedence over zone hints": SelectionCase(
        CLUSTER, ".3 b @node-1 R, .4 a @node-2 R", ".3", "", ".3"
    ),
    "no node hint to this node, zone hint to its zone": SelectionCase(
        CLUSTER, ".3 a @node-2 R, .4 b @node-3 R", ".3", "", ".3"
    ),
    "no hint to this node or its zone": SelectionCase(CLUSTER, ".3 b @node-2 R, .4 b @node-3 R", ".3 .4", "", ".3 .4"),
    "incomplete node hints, complete zone hints": SelectionCase(CLUSTER, ".3 b @node-1 R, .4 a R", ".4", "", ".4"),
    "incomplete node hints, no zone hints": SelectionCase(CLUSTER, ".3 @node-1 R, .4 R", ".3 .4", "", ".3 .4"),
    "only an unready endpoint has a hint to this node": SelectionCase(
        CLUSTER, ".3 @node-1, .4 @node-2 R", ".4", "", ".4"
    ),
    "node hint does not make an endpoint local": SelectionCase(
        EXTERNAL_LOCAL, ".3 @node-1 R, .4 @node-2 LR", ".3", ".4", ".3 .4"
    ),
}

FALLBACKS = {
    "fallback to terminating endpoints ignores hints": SelectionCase(
        CLUSTER, ".3 a, .4 b ST, .5 c ST", ".4 .5", "", ".4 .5"
    ),
    "no fallback with a ready endpoint": SelectionCase(CLUSTER, ".0 R, .1 ST", ".0", "", ".0"),
    "terminating endpoints that do not serve are no fallback": SelectionCase(CLUSTER, ".0 T, .1 T", has_any=False),
    "serving endpoints that are not terminating are no fallback": SelectionCase(CLUSTER, ".0 S, .1 S", has_any=False),
    "local fallback with ready remote endpoints": SelectionCase(EXTERNAL_LOCAL, ".0 RS, .1 LST", ".0", ".1", ".0 .1"),
    "no local fallback with a ready local endpoint": SelectionCase(EXTERNAL_LOCAL, ".0 LRS, .1 LST", ".0", ".0", ".0"),
    "unready local endpoint is not selected": SelectionCase(EXTERNAL_LOCAL, ".0 R, .1 L", ".0", "", ".0"),
    "ready and terminating endpoint counts as ready": SelectionCase(
        EXTERNAL_LOCAL, ".0 LRST, .1 R", ".0 .1", ".0", ".0 .1"
    ),
    "ready and terminating endpoint prevents the fallback": SelectionCase(CLUSTER, ".0 RST, .1 ST", ".0", "", ".0"),
    "internal Local, remote terminating endpoint": SelectionCase(INTERNAL_LOCAL, ".0 ST"),
    "internal Local, local terminating endpoints": SelectionCase(INTERNAL_LOCAL, ".0 LST, .1 LT", "", ".0", ".0"),
    "internal Local, no usable endpoint": SelectionCase(INTERNAL_LOCAL, ".0 LT, .1 S", has_any=False),
    "order is kept": SelectionCase(EXTERNAL_LOCAL, ".9 LR, .1 R, .5 LR", ".9 .1 .5", ".9 .5", ".9 .1 .5"),
    "hints, no local endpoint": SelectionCase(EXTERNAL_LOCAL, ".3 a R, .4 b R", ".3", "", ".3"),
    "union of hinted and local endpoints": SelectionCase(EXTERNAL_LOCAL, ".3 a R, .4 b LR", ".3", ".4", ".3 .4"),
    "union of two fallbacks": SelectionCase(EXTERNAL_LOCAL, ".3 ST, .4 LST", ".3 .4", ".4", ".3 .4"),
    "policy Cluster with a NodePort": SelectionCase(NODE_PORT, ".0 LR, .1 R", ".0 .1", "", ".0 .1"),
}


def _octets(categorized: CategorizedEndpoints) -> tuple[str, str, str, bool]:
    cluster, local, reachable = (
        " ".join("." + endpoint.address.rpartition(".")[2] for endpoint in pool)
        for pool in (categorized.cluster, categorized.local, categorized.all_reachable)
    )
    return cluster, local, reachable, categorized.has_any_endpoints


def _check(case: SelectionCase) -> None:
    categorized = categorize_endpoints(endpoints(case.given), case.port, NODE, case.zone)
    assert (case.cluster, case.local, case.reachable, case.has_any) == _octets(categorized)


@parametrize_cases(HINTS)
def test_complete_zone_hints_select_endpoints_of_the_zone(case: SelectionCase) -> None:
    _check(case)


@parametrize_cases(POLICIES)
def test_policies_select_cluster_or_local_endpoints(case: SelectionCase) -> None:
    _check(case)


@parametrize_cases(NODE_HINTS)
def test_node_hints_take_precedence_over_zone_hints(case: SelectionCase) -> None:
    _check(case)


@parametrize_cases(FALLBACKS)
def test_terminating_endpoints_serve_if_none_is_ready(case: SelectionCase) -> None:
    _check(case)


@pytest.mark.parametrize("zone", ["", "zone-a"], ids=["no zone", "zone-a"])
def test_zone_is_irrelevant_without_hints(zone: str) -> None:
    categorized = categorize_endpoints(endpoints(".1 R, .2 LR, .3"), CLUSTER, NODE, zone)
    assert _octets(categorized) == (".1 .2", "", ".1 .2", True)


def test_endpoints_that_are_all_ready_are_not_copied() -> None:
    """A copy for each Service would take memory."""
    given = endpoints(".1 R, .2 LR")
    assert categorize_endpoints(given, CLUSTER, NODE, "").cluster is given


def test_selected_endpoints_keep_all_fields() -> None:
    given = endpoints(".3 a @node-1 LRS, .4 a @node-1 LRST")
    assert CategorizedEndpoints(given, given, given, has_any_endpoints=True) == categorize_endpoints(
        given, EXTERNAL_LOCAL, NODE, "zone-a"
    )
