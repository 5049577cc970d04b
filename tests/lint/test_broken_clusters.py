"""Whole clusters in which one thing is broken: ``knft lint`` names the cause, and nothing else.

The comment at the beginning of each file is the operator's report.
"""

from typing import NamedTuple

import pytest

from knft.config import Config
from knft.lint.lint import lint
from knft.lint.manifests import manifests_of
from knft.source.decode import decode
from knft.source.described_kinds import LINTED_KINDS
from tests.support.lint_reports import BROKEN_CLUSTERS


class Cause(NamedTuple):
    """The first finding, words of its texts, and the findings that follow from the same mistake."""

    identifier: str
    what: str
    words: tuple[str, ...]
    others: tuple[str, ...] = ()


CAUSES = {
    "broker-refused-in-the-ipv6-cluster": Cause(
        "family-without-slices", "sensors/broker", ("EndpointSlices are of type IPv4", "IPv6 connections are rejected")
    ),
    "connection-refused-on-node-2-over-ipv6": Cause(
        "node-port-without-address", "web/front http/tcp node-2", ("no IPv6 address that accepts NodePorts", "30080")
    ),
    "customers-see-the-wrong-shop": Cause(
        "contested-frontend", "new-shop/front https/tcp", ("203.0.113.90:443/tcp go to old-shop/front:https", "older")
    ),
    "logs-of-node-3-are-missing": Cause(
        "internal-policy-local", "logging/agent forward/tcp http/tcp node-3", ("are dropped on node-3",)
    ),
    "names-do-not-resolve": Cause(
        "port-name-without-slice", "kube-system/kube-dns dns/udp", ("'dns' (UDP), only 'dns' (TCP)", "are rejected")
    ),
    "no-traffic-from-the-internet": Cause(
        "external-policy-local",
        "ingress/nginx http/tcp https/tcp node-1 node-2 node-3",
        ("connections from outside to load balancer IP 203.0.113.80 are dropped",),
        ("endpoint-without-node",),
    ),
    "node-port-times-out-on-node-2": Cause(
        "external-policy-local",
        "shop/gateway https/tcp node-2",
        ("NodePort 30443 are dropped if they arrive at node-2",),
    ),
    "public-address-times-out-from-pods": Cause(
        "source-ranges-exclude-nodes",
        "hooks/receiver node-1 node-2",
        ("and of their pods to 203.0.113.21 are dropped",),
    ),
    "refused-after-the-restore": Cause(
        "service-without-slices",
        "payments/gateway",
        ("kubernetes.io/service-name=gateway", "connections are rejected"),
        ("slice-without-service",),
    ),
    "refused-since-the-last-release": Cause(
        "port-name-without-slice", "billing/invoices grpc/tcp", ("only 'grpc-api' (TCP) and 'http' (TCP)",)
    ),
}


def test_every_cluster_has_a_cause() -> None:
    assert {path.stem for path in BROKEN_CLUSTERS.glob("*.yaml")} == set(CAUSES)


@pytest.mark.parametrize("name", CAUSES)
def test_cause_is_named(name: str) -> None:
    decoded = decode((BROKEN_CLUSTERS / f"{name}.yaml").read_bytes(), LINTED_KINDS)
    assert decoded.problems == ()
    report = lint(manifests_of(decoded.objects, Config("")))
    cause, (first, *others) = CAUSES[name], report.findings
    assert (first.id, " ".join((first.object, *first.ports, *first.nodes))) == (cause.identifier, cause.what)
    assert [each.id for each in others] == list(cause.others)
    assert all(word in f"{first.what} {first.traffic}" for word in cause.words), first
    assert report.services == 5
