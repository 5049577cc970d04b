"""knft selects the endpoints that kube-proxy's test of this selection (TestCategorizeEndpoints) expects."""

import json
from typing import Any

import pytest

from knft.decide.endpoints import categorize_endpoints
from knft.model.endpoint import Endpoint
from knft.model.service_port import ServicePort
from tests.upstream.cases import CORPUS

_CASES = json.loads((CORPUS / "topology" / "TestCategorizeEndpoints.json").read_text())["cases"]
_EXCEPTIONS = {
    "PreferSameNode_falls_back_to_same-zone_when_feature_gate_disabled": "a feature gate that cannot be disabled since "
    "1.35 makes kube-proxy ignore node hints; knft always uses them"
}
"""Cases that differ on purpose, with the reason."""


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in _CASES])
def test_selected_endpoints_are_equal(case: dict[str, Any]) -> None:
    if case["name"] in _EXCEPTIONS:
        assert _selected(case) != case["result"], "remove this exception: the endpoints are equal"
    else:
        assert _selected(case) == case["result"]


def test_exceptions_name_cases() -> None:
    assert _EXCEPTIONS.keys() <= {case["name"] for case in _CASES}


def _selected(case: dict[str, Any]) -> dict[str, Any]:
    port = ServicePort(
        "172.30.0.41",
        80,
        "TCP",
        node_port=case["nodePort"],
        internal_policy_local=case["internalPolicyLocal"],
        external_policy_local=case["externalPolicyLocal"],
    )
    found = categorize_endpoints(tuple(map(_endpoint, case["endpoints"])), port, case["nodeName"], case["zone"])
    names = {"cluster": found.cluster, "local": found.local, "all": found.all_reachable}
    return {
        **{name: sorted(endpoint.key for endpoint in endpoints) for name, endpoints in names.items()},
        "any": found.has_any_endpoints,
    }


def _endpoint(recorded: dict[str, Any]) -> Endpoint:
    address, port = recorded["endpoint"].split(":")
    return Endpoint.at(
        address,
        int(port),
        is_local=recorded["isLocal"],
        ready=recorded["ready"],
        serving=recorded["serving"],
        terminating=recorded["terminating"],
        zone_hints=frozenset(recorded["zoneHints"]),
        node_hints=frozenset(recorded["nodeHints"]),
    )
