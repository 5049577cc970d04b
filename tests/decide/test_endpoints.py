"""Selection of endpoints by kind of traffic (docs/behaviour/endpoints.md)."""

from typing import NamedTuple

import pytest

from knft.decide.endpoints import categorize_endpoints
from knft.model.plan import CategorizedEndpoints
from knft.model.service_port import ServicePort
from tests.support.kube_objects import NODE, endpoints, parametrize_rows

CLUSTER = ServicePort("10.96.0.1", 80, "TCP")
NODE_PORT = ServicePort("10.96.0.1", 80, "TCP", node_port=30080)
INTERNAL_LOCAL = ServicePort("10.96.0.1", 80, "TCP", internal_policy_local=True)
INTERNAL_LOCAL_NODE_PORT = ServicePort("10.96.0.1", 80, "TCP", node_port=30080, internal_policy_local=True)
EXTERNAL_LOCAL = ServicePort("10.96.0.1", 80, "TCP", node_port=30080, external_policy_local=True)
BOTH_LOCAL = ServicePort(
    "10.96.0.1", 80, "TCP", node_port=30080, internal_policy_local=True, external_policy_local=True
)
UNREACHABLE_EXTERNAL_LOCAL = ServicePort("10.96.0.1", 80, "TCP", external_policy_local=True)


class Row(NamedTuple):
    """``given`` in the notation of ``objects.endpoints``; the expected ones as last octets, in their order."""

    port: ServicePort
    given: str
    cluster: str = ""
    local: str = ""
    reachable: str = ""
    has_any: bool = True
    zone: str = "zone-a"


HINTED = ".3 a LR, .4 b LR, .5 c R, .6 a R"
EVERY_ONE_READY = ".3 .4 .5 .6"
MANY_HINTS = ".3 a R, .4 b c R, .5 b c d R, .6 c R"

HINTS = {
    "hints and external policy Local": Row(EXTERNAL_LOCAL, HINTED, ".3 .6", ".3 .4", ".3 .4 .6"),
    "hints and internal policy Local": Row(INTERNAL_LOCAL_NODE_PORT, HINTED, ".3 .6", ".3 .4", ".3 .4 .6"),
    "hints and both policies Local": Row(BOTH_LOCAL, HINTED, ".3 .6", ".3 .4", ".3 .4 .6"),
    "no zone, the node has no label": Row(CLUSTER, HINTED, EVERY_ONE_READY, "", EVERY_ONE_READY, zone=""),
    "node in a zone without hints": Row(CLUSTER, HINTED, EVERY_ONE_READY, "", EVERY_ONE_READY, zone="zone-x"),
    "hinted to this zone but not ready": Row(CLUSTER, ".3 a R, .4 b R, .5 c R, .6 a", ".3", "", ".3"),
    "only unready endpoints hinted to this zone": Row(CLUSTER, ".3 a, .4 b R, .5 c R, .6 a", ".4 .5", "", ".4 .5"),
    "one ready endpoint lacks a hint": Row(
        CLUSTER, ".3 a R, .4 b R, .5 R, .6 a R", EVERY_ONE_READY, "", EVERY_ONE_READY
    ),
    "several zones in one endpoint's hints": Row(CLUSTER, MANY_HINTS, ".4 .5 .6", "", ".4 .5 .6", zone="zone-c"),
    "hints and locality that conflict": Row(
        EXTERNAL_LOCAL, ".0 a R, .1 a LR, .2 b LR, .3 b R", ".0 .1", ".1 .2", ".0 .1 .2"
    ),
    "an unready endpoint without hints among hinted ready ones": Row(CLUSTER, ".3 a R, .4 b R, .5", ".3", "", ".3"),
    "a set of hints that is empty counts as none": Row(CLUSTER, ".3 a R, .4 R", ".3 .4", "", ".3 .4"),
    "no ready endpoints, so that hints mean nothing": Row(CLUSTER, ".3 a ST, .4 b ST", ".3 .4", "", ".3 .4"),
}

POLICIES = {
    "internal Local, no endpoints": Row(INTERNAL_LOCAL, "", has_any=False),
    "internal Local, all remote": Row(INTERNAL_LOCAL, ".0 R, .1 R"),
    "internal Local, all local": Row(INTERNAL_LOCAL, ".0 LR, .1 LR", "", ".0 .1", ".0 .1"),
    "internal Local, some local": Row(INTERNAL_LOCAL, ".0 R, .1 LR", "", ".1", ".1"),
    "internal Local, inside the cluster only": Row(INTERNAL_LOCAL, ".0 R, .1 LRS", "", ".1", ".1"),
    "Cluster, no endpoints": Row(CLUSTER, "", has_any=False),
    "Cluster, none ready": Row(CLUSTER, ".0, .1", has_any=False),
    "Cluster, some ready": Row(CLUSTER, ".0 R, .1", ".0", "", ".0"),
    "Cluster, all terminating and serving": Row(CLUSTER, ".0 ST, .1 ST", ".0 .1", "", ".0 .1"),
    "internal Local, external Cluster": Row(INTERNAL_LOCAL_NODE_PORT, ".0 LR, .1 R", ".0 .1", ".0", ".0 .1"),
    "internal Cluster, external Local": Row(EXTERNAL_LOCAL, ".0 LR, .1 R", ".0 .1", ".0", ".0 .1"),
    "both Local, one local": Row(BOTH_LOCAL, ".0 LR, .1 R", ".0 .1", ".0", ".0 .1"),
    "both Local, all remote": Row(BOTH_LOCAL, ".0 R, .1 R", ".0 .1", "", ".0 .1"),
    "both Local, remote and terminating": Row(BOTH_LOCAL, ".0 ST, .1 ST", ".0 .1", "", ".0 .1"),
    "internal Cluster, external Local, terminating local": Row(
        EXTERNAL_LOCAL, ".0 R, .1 LT, .2 LST, .3 ST", ".0", ".2", ".0 .2"
    ),
    "external Local, dialled from nowhere outside": Row(
        UNREACHABLE_EXTERNAL_LOCAL, ".0 R, .1 LR", ".0 .1", "", ".0 .1"
    ),
}

NODE_HINTS = {
    "every endpoint hinted to a node, one to this": Row(CLUSTER, ".3 @node-1 R, .4 @node-2 R", ".3", "", ".3"),
    "several nodes in one endpoint's hints": Row(
        CLUSTER, ".3 @node-2 R, .4 @node-2 @node-1 R, .5 @node-1 R", ".4 .5", "", ".4 .5"
    ),
    "a node's hint comes before a zone's": Row(CLUSTER, ".3 b @node-1 R, .4 a @node-2 R", ".3", "", ".3"),
    "this node is not named, its zone is": Row(CLUSTER, ".3 a @node-2 R, .4 b @node-3 R", ".3", "", ".3"),
    "neither this node nor its zone is named": Row(CLUSTER, ".3 b @node-2 R, .4 b @node-3 R", ".3 .4", "", ".3 .4"),
    "node hints half written, zone hints whole": Row(CLUSTER, ".3 b @node-1 R, .4 a R", ".4", "", ".4"),
    "node hints half written, no zone hints": Row(CLUSTER, ".3 @node-1 R, .4 R", ".3 .4", "", ".3 .4"),
    "only an unready endpoint is hinted to this node": Row(CLUSTER, ".3 @node-1, .4 @node-2 R", ".4", "", ".4"),
    "this node's endpoint is not local for all that": Row(
        EXTERNAL_LOCAL, ".3 @node-1 R, .4 @node-2 LR", ".3", ".4", ".3 .4"
    ),
}

STEPS = {
    "fallback to terminating ones looks at no hints": Row(CLUSTER, ".3 a, .4 b ST, .5 c ST", ".4 .5", "", ".4 .5"),
    "no fallback while one is ready": Row(CLUSTER, ".0 R, .1 ST", ".0", "", ".0"),
    "terminating and not serving is no fallback": Row(CLUSTER, ".0 T, .1 T", has_any=False),
    "serving, neither ready nor terminating, is no fallback": Row(CLUSTER, ".0 S, .1 S", has_any=False),
    "local fallback while remote ones are ready": Row(EXTERNAL_LOCAL, ".0 RS, .1 LST", ".0", ".1", ".0 .1"),
    "no local fallback while a local one is ready": Row(EXTERNAL_LOCAL, ".0 LRS, .1 LST", ".0", ".0", ".0"),
    "local endpoints that are not ready are not local": Row(EXTERNAL_LOCAL, ".0 R, .1 L", ".0", "", ".0"),
    "a ready endpoint that terminates is ready": Row(EXTERNAL_LOCAL, ".0 LRST, .1 R", ".0 .1", ".0", ".0 .1"),
    "and keeps the others from being a fallback": Row(CLUSTER, ".0 RST, .1 ST", ".0", "", ".0"),
    "internal Local, only terminating ones elsewhere": Row(INTERNAL_LOCAL, ".0 ST"),
    "internal Local, only terminating ones here": Row(INTERNAL_LOCAL, ".0 LST, .1 LT", "", ".0", ".0"),
    "internal Local, nothing usable": Row(INTERNAL_LOCAL, ".0 LT, .1 S", has_any=False),
    "order is kept": Row(EXTERNAL_LOCAL, ".9 LR, .1 R, .5 LR", ".9 .1 .5", ".9 .5", ".9 .1 .5"),
    "hints, and nothing local": Row(EXTERNAL_LOCAL, ".3 a R, .4 b R", ".3", "", ".3"),
    "union where hints leave a local one out": Row(EXTERNAL_LOCAL, ".3 a R, .4 b LR", ".3", ".4", ".3 .4"),
    "union of two fallbacks": Row(EXTERNAL_LOCAL, ".3 ST, .4 LST", ".3 .4", ".4", ".3 .4"),
    "policy Cluster with a NodePort": Row(NODE_PORT, ".0 LR, .1 R", ".0 .1", "", ".0 .1"),
}


def _octets(found: CategorizedEndpoints) -> tuple[str, str, str, bool]:
    cluster, local, reachable = (
        " ".join("." + endpoint.address.rpartition(".")[2] for endpoint in part)
        for part in (found.cluster, found.local, found.all_reachable)
    )
    return cluster, local, reachable, found.has_any_endpoints


def _check(row: Row) -> None:
    found = categorize_endpoints(endpoints(row.given), row.port, NODE, row.zone)
    assert (row.cluster, row.local, row.reachable, row.has_any) == _octets(found)


@parametrize_rows(HINTS)
def test_complete_zone_hints_select_endpoints_of_the_zone(row: Row) -> None:
    _check(row)


@parametrize_rows(POLICIES)
def test_policies_select_cluster_or_local_endpoints(row: Row) -> None:
    _check(row)


@parametrize_rows(NODE_HINTS)
def test_node_hints_take_precedence_over_zone_hints(row: Row) -> None:
    _check(row)


@parametrize_rows(STEPS)
def test_each_step_of_the_selection(row: Row) -> None:
    _check(row)


@pytest.mark.parametrize("zone", ["", "zone-a"], ids=["no zone", "zone-a"])
def test_zone_is_irrelevant_without_hints(zone: str) -> None:
    found = categorize_endpoints(endpoints(".1 R, .2 LR, .3"), CLUSTER, NODE, zone)
    assert _octets(found) == (".1 .2", "", ".1 .2", True)


def test_selected_endpoints_keep_all_fields() -> None:
    given = endpoints(".3 a @node-1 LRS, .4 a @node-1 LRST")
    assert CategorizedEndpoints(given, given, given, has_any_endpoints=True) == categorize_endpoints(
        given, EXTERNAL_LOCAL, NODE, "zone-a"
    )
