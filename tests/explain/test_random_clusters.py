"""Random clusters: endpoints that are called used are those that packets reach, from objects and from rules."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from knft.cli.explain_text import format_explanation
from knft.comparison.explained import kernel_source, object_source
from knft.comparison.rendered import knft_rules
from knft.config import Config
from knft.explain.explain import explain
from knft.explain.explanation import Explanation
from knft.explain.query import parse_query
from knft.explain.sources import KernelSource, ObjectSource
from knft.model.objects import ObjectChange
from knft.source.decode import decode
from knft.source.described_kinds import DESCRIBED_KINDS
from tests.support.cluster_strategies import NAMES
from tests.support.explain_statements import checked_statements
from tests.support.explained_clusters import CONFIGS, OWN, clusters
from tests.support.used_endpoints import check_used_endpoints


@settings(max_examples=40)  # Two seconds.
@given(clusters(), st.sampled_from(CONFIGS))
def test_used_endpoints_get_packets(objects: list[dict[str, Any]], config: Config) -> None:
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()
    changes = tuple(ObjectChange(None, item) for item in decode(document, DESCRIBED_KINDS).objects)
    found = object_source(changes, config, OWN)
    kernel = kernel_source(knft_rules(changes, config, OWN), OWN)
    for name in NAMES:
        explained = explain(parse_query(name), found)
        others = {(port.port, port.protocol, port.family): port for port in explain(parse_query(name), kernel).ports}
        for port in explained.ports:
            for frontend in port.frontends:
                check_used_endpoints(port, frontend)
            other = others.get((port.port, port.protocol, port.family))
            owned = {each.what: each.outcomes for each in port.frontends if each.is_owned}
            assert owned == ({each.what: each.outcomes for each in other.frontends} if other is not None else {})
        _check_formats(explained)
    for number in (1, 5):
        _check_endpoint(f"10.244.0.{number}", found, kernel)


def _check_endpoint(address: str, found: ObjectSource, kernel: KernelSource) -> None:
    """An endpoint's address leads to the Service ports that have it; in the kernel, to those that use it."""
    explained = explain(parse_query(address), found)
    assert all(port.endpoints for port in explained.ports)
    using = {
        (port.port, port.protocol)
        for port in explained.ports
        if any(
            f"{address}:{number}" in outcome.endpoints
            for frontend in port.frontends
            if frontend.is_owned
            for outcome in frontend.outcomes
            for number in (8080, 8081)
        )
    }
    ports = explain(parse_query(address), kernel).ports
    assert using <= {(port.port, port.protocol) for port in ports}
    _check_formats(explained)


def _check_formats(explained: Explanation) -> None:
    assert checked_statements(explained)
    assert all(len(line) <= 80 for line in format_explanation(explained, 80).splitlines())
    assert msgspec.json.decode(msgspec.json.encode(explained), type=Explanation) == explained
