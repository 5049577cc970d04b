"""Each check finds its mistake, and nothing in the correct manifests beside it."""

import json
import re
from pathlib import Path

import pytest

from knft.cli.lint import problems_without_check
from knft.config import Config
from knft.lint.checks import Check
from knft.lint.lint import lint
from knft.lint.manifests import manifests_of
from knft.lint.report import LintReport
from knft.source.decode import decode
from knft.source.described_kinds import LINTED_KINDS
from tests.lint.cases import CASES, Case
from tests.lint.objects import DUAL, TWO_NODES, Object, endpoint_slice, service, service_cidr

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "operations" / "lint.md"


def linted(*objects: Object, config: Config | None = None, node: str | None = None) -> LintReport:
    """Return the report about objects."""
    decoded = decode(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode(), LINTED_KINDS)
    return lint(manifests_of(decoded.objects, config or Config(""), node, problems_without_check(decoded.problems)))


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
    found = lines(linted(*case.broken))
    assert {each for each, _ in found} == {each.identifier for each in (case.check, *case.others)}
    assert any(line.startswith(case.finding) for name, line in found if name == case.check.identifier), found
    assert lines(linted(*case.correct)) == []


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


def test_every_check_has_a_case_and_documentation() -> None:
    assert [case.check for case in CASES] == list(Check)
    anchors = re.findall(r"^### .*\{#([a-z-]+)\}$", DOCUMENTATION.read_text(), re.MULTILINE)
    assert anchors == [check.identifier for check in Check]
