"""Runs all checks."""

from collections.abc import Iterator

from knft.decide.node_problems import missing_node_problem, unknown_name_problem
from knft.families import Family
from knft.lint.checks import Check
from knft.lint.cluster_ips import cluster_ip_hits
from knft.lint.endpoints import EndpointChecks
from knft.lint.frontends import FrontendChecks
from knft.lint.manifests import FamilyCluster, Manifests, slices_by_service
from knft.lint.nodes import NodeChecks
from knft.lint.outside_endpoints import outside_endpoint_hits
from knft.lint.report import Hit, LintReport, findings_of, hit
from knft.lint.service_changes import service_change_hits
from knft.lint.services import service_hits
from knft.lint.slices import slice_hits

_NO_NODES = "there are no Node objects: policy Local, source ranges, NodePort addresses and zones were not checked"
_NO_SLICES = "there are no EndpointSlices: endpoints were not checked"


def lint(manifests: Manifests) -> LintReport:
    """Return the findings about manifests; raise nothing, whatever objects the reader accepted."""
    findings = findings_of(_hits(manifests))
    problems = sum(each.severity == "problem" for each in findings)
    return LintReport(
        problems,
        len(findings) - problems,
        len(manifests.services),
        manifests.node_names(),
        tuple(_notes(manifests)),
        findings,
    )


def _notes(manifests: Manifests) -> Iterator[str]:
    if not manifests.nodes:
        yield _NO_NODES
    if not manifests.slices:
        yield _NO_SLICES
    for name in set(manifests.node_names()) - manifests.known_nodes:
        used = {each.node_name for item in manifests.slices for each in item.endpoints or () if each.node_name}
        if message := missing_node_problem(name, manifests.known_nodes) or unknown_name_problem(name, used):
            yield message


def _hits(manifests: Manifests) -> Iterator[Hit]:
    services = {service.key: service for service in manifests.services}
    for message in manifests.problems:
        yield hit(Check.INVALID_OBJECT, "manifests", message=message)
    for service in manifests.services:
        yield from service_hits(service)
    for item in manifests.slices:
        yield from slice_hits(item, services)
    slices = slices_by_service(manifests.slices)
    for service in manifests.services:
        yield from service_change_hits(service, manifests.earlier_services.get(service.key), slices)
    for family in Family:
        cluster = FamilyCluster(manifests, family)
        yield from cluster_ip_hits(cluster)
        yield from FrontendChecks(cluster, services).hits()
        if manifests.slices:
            yield from EndpointChecks(cluster, services, slices).hits()
            yield from outside_endpoint_hits(cluster, services)
        if manifests.nodes:
            yield from NodeChecks(cluster).hits(with_endpoints=bool(manifests.slices))
