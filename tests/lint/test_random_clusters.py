"""Random clusters: findings are those that ``knft explain`` has as problems, and do not depend on order."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knft.cli.lint_text import format_report
from knft.comparison.explained import object_source
from knft.config import Config
from knft.explain.explain import explain
from knft.explain.query import parse_query
from knft.explain.sentences import Sentence
from knft.lint.checks import Check
from knft.model.objects import ObjectChange
from knft.source.decode import decode
from knft.source.described_kinds import LINTED_KINDS
from tests.lint.test_checks import linted
from tests.support.cluster_strategies import NAMES, endpoint_slices, nodes, services
from tests.support.lint_objects import Object

SENTENCES = {
    Check.SERVICE_WITHOUT_SLICES: Sentence.NO_SLICES,
    Check.FAMILY_WITHOUT_SLICES: Sentence.NO_SLICES,
    Check.PORT_NAME_WITHOUT_SLICE: Sentence.PORT_NOT_IN_SLICES,
    Check.SLICES_WITHOUT_PORTS: Sentence.SLICES_WITHOUT_PORTS,
    Check.SERVICE_WITHOUT_ENDPOINTS: Sentence.NO_ENDPOINTS,
    Check.NO_READY_ENDPOINT: Sentence.NONE_READY,
    Check.TOO_MANY_ENDPOINTS: Sentence.TOO_MANY_ENDPOINTS,
    Check.EXTERNAL_POLICY_LOCAL: Sentence.EXTERNAL_NONE_LOCAL,
    Check.INTERNAL_POLICY_LOCAL: Sentence.INTERNAL_NONE_LOCAL,
    Check.CONTESTED_FRONTEND: Sentence.LOST_FRONTENDS,
}
"""Checks, and the sentences with which ``knft explain`` says the same of a Service port on one node."""
_KINDS = {check.identifier: sentence.kind for check, sentence in SENTENCES.items()}


@st.composite
def clusters(draw: st.DrawFn) -> list[Object]:
    """Return Services, slices and a node, in which everything collides; some fields have values of any type."""
    listed = [draw(services(name)) for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))]
    for item in listed:
        anything = st.sampled_from((None, "", "Auto", "PreferClose", 7, ["x"], {"a": 1}))
        extra = ("loadBalancerIP", "topologyKeys", "trafficDistribution", "externalName")
        item["spec"] |= {field: draw(anything) for field in extra}
        item["spec"]["type"] = draw(st.sampled_from(("NodePort", "LoadBalancer", "ExternalName")))
        if draw(st.integers(0, 4)) == 0:
            item["spec"] |= {"clusterIP": draw(st.sampled_from(("", "None"))), "clusterIPs": None}
    slices = [draw(endpoint_slices(f"slice-{number}")) for number in range(draw(st.integers(1, 4)))]
    return [draw(nodes()), *listed, *slices]


@pytest.mark.property
@settings(max_examples=30)  # Two seconds.
@given(clusters(), st.randoms(use_true_random=False))
def test_findings_are_the_problems_of_explanations(objects: list[Object], random: Any) -> None:
    """Nothing that the reader accepts raises."""
    report = linted(*objects, node="node-1")
    found = {
        (each.object, family, _KINDS[each.id])
        for each in report.findings
        for family in each.families
        if each.id in _KINDS
    }
    assert found == _problems(objects)
    shuffled = list(objects)
    random.shuffle(shuffled)
    # The messages of the reader have numbers of documents.
    again = [each for each in linted(*shuffled, node="node-1").findings if each.id != "invalid-object"]
    assert again == [each for each in report.findings if each.id != "invalid-object"]
    assert all(len(line) <= 80 for line in format_report(report, 80).splitlines())


def _problems(objects: list[Object]) -> set[tuple[str, str, str]]:
    """Return the problems of all Service ports on the node, by Service, family and sentence."""
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    changes = tuple(ObjectChange(None, item) for item in decode(document, LINTED_KINDS).objects)
    source = object_source(changes, Config("node-1"))
    return {
        (f"default/{name}", port.family, problem.kind)
        for name in NAMES
        for port in explain(parse_query(name), source).ports
        for problem in port.problems
        if problem.kind in _KINDS.values()
    }
