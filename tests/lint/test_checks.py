"""Each check finds its mistake, and nothing in the correct manifests beside it."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from knft.cli.lint import problems_without_check
from knft.config import Config
from knft.lint.checks import Check
from knft.lint.lint import lint
from knft.lint.manifests import manifests_of
from knft.lint.report import LintReport
from knft.model.described import Service
from knft.source.decode import DecodedManifest, decode
from knft.source.described_kinds import LINTED_KINDS
from tests.lint.cases import CASES, MISTYPED, WEB, Case
from tests.support.lint_objects import (
    DUAL,
    TWO_NODES,
    Object,
    endpoint,
    endpoint_slice,
    load_balancer,
    node,
    service,
    service_cidr,
)

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "operations" / "lint.md"


def _decoded(objects: tuple[Object, ...]) -> DecodedManifest:
    return decode(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode(), LINTED_KINDS)


def linted(
    *objects: Object, config: Config | None = None, node: str | None = None, before: tuple[Object, ...] = ()
) -> LintReport:
    """Return the report about objects, and about those before a change."""
    decoded = _decoded(objects)
    manifests = manifests_of(decoded.objects, config or Config(""), node, problems_without_check(decoded.problems))
    earlier = {item.key: item for item in _decoded(before).objects if isinstance(item, Service)}
    return lint(replace(manifests, earlier_services=earlier))


def lines(report: LintReport) -> list[tuple[str, str]]:
    """Return the identifier of each finding, and a line with its object and text."""
    return [
        (each.id, " ".join([f"{each.severity}: {each.object}", *each.ports, *_nodes(each.nodes)]) + f": {each.what}")
        for each in report.findings
    ]


def _nodes(names: tuple[str, ...]) -> list[str]:
    return [", ".join(names)] if names else []


@pytest.mark.parametrize("case", CASES, ids=[case.check.identifier for case in CASES])
def test_finding_is_in_the_broken_manifests_only(case: Case) -> None:
    found = lines(linted(*case.broken, before=case.before))
    assert {each for each, _ in found} == {each.identifier for each in (case.check, *case.others)}
    assert any(line.startswith(case.finding) for name, line in found if name == case.check.identifier), found
    assert lines(linted(*case.correct, before=case.before)) == []


def test_unknown_value_of_knfts_annotation_is_reported() -> None:
    (found,) = lines(linted(service(annotations={"knft.dev/drain": "rest"}), endpoint_slice()))
    line = "Service shop/web: metadata.annotations['knft.dev/drain']: 'rest' is not keep or reset; keep is used"
    assert found == (Check.INVALID_OBJECT.identifier, f"problem: manifests: {line}")
    assert lines(linted(service(annotations={"knft.dev/drain": "reset"}), endpoint_slice())) == []


def _advice(*objects: Object) -> list[tuple[str, str]]:
    return [(each.id, each.advice) for each in linted(*objects).findings if each.severity == "problem"]


def test_ports_of_the_endpoint_slice_controller_are_corrected_in_the_service() -> None:
    """It writes no port for a targetPort that no pod has: nobody can give its EndpointSlices another port."""
    http = {"name": "http", "port": 80, "targetPort": "web"}
    remedy = "correct targetPort 'web', or the name of the pods' container port"
    unnamed = "give the EndpointSlices a port with the name of the Service port and a number"
    controller = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    own, managed = endpoint_slice(ports=[]), endpoint_slice(ports=[], labels=controller)
    assert _advice(service(ports=[http]), own) == [("slices-without-ports", remedy)]
    assert _advice(service(ports=[http], selector=None), managed) == [("slices-without-ports", remedy)]
    assert _advice(service(ports=[http], selector=None), own) == [("slices-without-ports", unnamed)]
    assert _advice(service(ports=[http | {"targetPort": 8080}]), managed) == [("slices-without-ports", unnamed)]

    admin = {"name": "admin", "port": 81, "targetPort": "admin"}
    assert _advice(service(ports=[http, admin]), own) == [
        ("slices-without-ports", "correct targetPort 'web' and 'admin', or the name of the pods' container port")
    ]
    one = endpoint_slice(ports=[{"name": "admin", "port": 8081, "protocol": "TCP"}])
    assert _advice(service(ports=[http, admin]), one) == [("port-name-without-slice", remedy)]


def test_pods_outside_of_pod_cidrs_disable_the_check() -> None:
    """Then the network gives pods other addresses. Nodes' addresses are those of pods with hostNetwork."""
    pod: Object = {"targetRef": {"kind": "Pod", "name": "web-1"}}
    on_host = endpoint(1, **pod) | {"addresses": ["192.0.2.11"]}
    one_pod_outside = endpoint_slice(endpoint(1), MISTYPED | pod, MISTYPED | {"addresses": ["10.244.12.2"]})
    one_node_without = (node(1), node(2, families=["IPv6"]))
    for objects in (
        (one_pod_outside, *TWO_NODES),
        (endpoint_slice(endpoint(1), on_host), *TWO_NODES),
        (endpoint_slice(MISTYPED), *TWO_NODES),
        (endpoint_slice(endpoint(1), MISTYPED | {"nodeName": "node-9"}), *TWO_NODES),
        (endpoint_slice(endpoint(1), MISTYPED), *one_node_without),
        (endpoint_slice(endpoint(1), MISTYPED),),
    ):
        assert linted(service(), *objects).findings == ()
    mistyped = (service(), endpoint_slice(endpoint(1, **pod), on_host, MISTYPED), *TWO_NODES)
    assert [each.id for each in linted(*mistyped).findings] == ["endpoint-outside-pod-cidrs"]
    assert linted(*mistyped, node="node-1").findings == ()
    assert linted(*mistyped, config=Config("", cluster_cidrs=("10.244.0.0/16",))).findings == ()


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        ([{"name": "http", "port": 8080}], "80/tcp is 8080/tcp at the pods"),
        (
            [{"name": "http", "port": 8080}, {"name": "http", "port": 8081}],
            "80/tcp is 8080/tcp and 8081/tcp at the pods",
        ),
        ([{"name": "http", "port": 80}], "the pods have the same ports"),
        ([{"name": "web", "port": 80}], "the EndpointSlices have none of its ports"),
    ],
)
def test_ports_of_a_service_that_became_headless(ports: list[Object], text: str) -> None:
    after = (service(clusterIP="None"), endpoint_slice(ports=ports, labels={"service.kubernetes.io/headless": ""}))
    (found,) = linted(*after, before=WEB).findings
    assert found.traffic.endswith(f", and knft does not translate the port: {text}")
    assert linted(*after, before=after).findings == ()
    assert linted(*after, before=(service("api"),)).findings == ()


def test_cluster_ips_of_nodes_and_pods() -> None:
    """A dual-stack Service is checked in both families, and an endpoint with such an address is not to blame."""
    dual = service(**{**DUAL, "clusterIPs": ["10.96.0.10", "2001:db8:1::12"]})
    api = service("api", clusterIP="10.244.2.11")
    slices = (endpoint_slice(), endpoint_slice(family="IPv6"), endpoint_slice(service="api"))
    found = linted(dual, api, *slices, *TWO_NODES)
    texts = {each.object: each for each in found.findings if each.id == "cluster-ip-conflict"}
    assert texts["shop/web"].what == "cluster IP 2001:db8:1::12 is the node's address on node-2"
    assert texts["shop/api"].what == "cluster IP 10.244.2.11 is in the pod CIDR 10.244.2.0/24 on node-2"
    remedies = {each.object: each.advice for each in found.findings if each.id == "endpoint-is-cluster-ip"}
    assert remedies["shop/web"] == (
        "give Services other cluster IPs than 10.244.2.11: nodes or pods have these addresses"
    )


def test_service_cidrs_of_one_family_say_nothing_about_the_other() -> None:
    dual = (service(**DUAL), endpoint_slice(), endpoint_slice(family="IPv6"))
    assert linted(*dual, service_cidr("10.96.0.0/16")).findings == ()
    (found,) = linted(*dual, service_cidr("10.96.0.0/16", "fd00:10:97::/112")).findings
    assert (found.id, found.families) == ("cluster-ip-outside-service-cidrs", ("IPv6",))


def test_clients_that_source_ranges_exclude_on_one_node_and_on_several() -> None:
    objects = load_balancer("203.0.113.1", loadBalancerSourceRanges=["198.51.100.0/24"]), endpoint_slice()
    for nodes, clients in ((TWO_NODES[:1], "node-1 and of its pods"), (TWO_NODES, "both nodes and of their pods")):
        (found,) = linted(*objects, *nodes).findings
        assert found.traffic == f"new connections of {clients} to 203.0.113.1 are dropped"


def test_headless_slices_of_a_dual_stack_service_are_not_of_the_other_family() -> None:
    labels = {"service.kubernetes.io/headless": ""}
    slices = [endpoint_slice(family=family, name=family.lower(), labels=labels) for family in ("IPv4", "IPv6")]
    found, *others = linted(service(**DUAL), *slices).findings
    assert (found.id, found.families) == ("service-without-slices", ("IPv4", "IPv6"))
    assert found.what.endswith("=web, except those with label service.kubernetes.io/headless")
    assert {each.id for each in others} == {"headless-slice"}


def test_every_check_has_a_case_and_documentation() -> None:
    assert [case.check for case in CASES] == list(Check)
    _, _, described = DOCUMENTATION.read_text().partition("\n## Problems {#problems}\n")
    anchors = re.findall(r"^### .*\{#([a-z-]+)\}$", described, re.MULTILINE)
    assert anchors == [check.identifier for check in Check]
