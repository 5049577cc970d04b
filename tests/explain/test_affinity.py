"""Affinity entries in explanations: of rendered rules, with the entries of a set that a dict replaces."""

from collections.abc import Mapping
from typing import Any

import pytest

from knft.cli.explain_text import _affinity, format_explanation
from knft.explain.affinity import Client, with_affinity
from knft.explain.explanation import Explanation
from knft.explain.outcomes import Probes
from knft.explain.sentences import Sentence
from knft.explain.sources import KernelSource
from knft.families import Family
from knft.interpret.outcomes import AffinityEntry
from knft.model.objects import EndpointSlice, Service
from tests.support.explain_sources import NODE_IP, explained, of_objects, of_rules, served
from tests.support.explain_statements import checked_statements
from tests.support.kube_objects import endpoint, endpoint_slice, service, service_port

LOCAL, REMOTE = "10.244.1.11:8080", "10.244.2.11:8080"
CLIENT = Client(Family.IPV4, "198.51.100.7")
AT_CLUSTER_IP, AT_NODE_PORT = "10.96.0.10:80/tcp", ":30080/tcp"


def _sticky(**spec: Any) -> tuple[Service, EndpointSlice]:
    """Return a Service with ClientIP affinity, an endpoint on this node, and one on another."""
    found = service(
        cluster_ip="10.96.0.10",
        type="NodePort",
        ports=(service_port(node_port=30080),),
        session_affinity="ClientIP",
        **spec,
    )
    endpoints = (endpoint("10.244.1.11", node="node-1"), endpoint("10.244.2.11", node="node-2"))
    return found, endpoint_slice("web-1", *endpoints, service="web")


class KernelEntries:
    """The affinity entries in the kernel, by endpoint: the number of clients, and the seconds of the client's."""

    def __init__(
        self,
        rules: KernelSource,
        clients: Mapping[str, int],
        seconds: Mapping[str, int] | None = None,
        *,
        is_complete: bool = True,
    ) -> None:
        self._rules, self._clients, self._seconds = rules, clients, seconds or {}
        self._is_complete = is_complete
        self.readings = 0

    def count(self, family: Family, ids: frozenset[int]) -> tuple[dict[int, int], bool]:
        self.readings += 1
        return self._by_id(family, ids, self._clients), self._is_complete

    def seconds(self, family: Family, ids: frozenset[int], client: str) -> dict[int, int]:
        assert client == CLIENT.address
        return self._by_id(family, ids, self._seconds)

    def _by_id(self, family: Family, ids: frozenset[int], by_endpoint: Mapping[str, int]) -> dict[int, int]:
        entries = self._rules.probes[family].affinity_endpoints("10.96.0.10", 80, "TCP")
        assert {key[0] for _, key in entries} == ids
        return {key[0]: by_endpoint[where] for (_, key), where in entries.items() if where in by_endpoint}


ABOUT_CLIENT = {
    each.kind for each in (Sentence.PINNED, Sentence.NOT_PINNED, Sentence.NO_AFFINITY, Sentence.NO_FRONTEND_OF_FAMILY)
}


def _texts(found: Explanation) -> list[str]:
    """Return what the first line says about the client, which comes first."""
    checked_statements(found)
    texts = [each.text for each in found.conclusion if each.kind in ABOUT_CLIENT]
    assert texts == [each.text for each in found.conclusion[: len(texts)]]
    return texts


def test_clients_of_each_endpoint_are_counted() -> None:
    objects, rules = of_objects(*_sticky()), of_rules(*_sticky())
    entries = KernelEntries(rules, {LOCAL: 999_997, REMOTE: 3, "10.244.2.99:1": 3})
    for source in (objects, rules):
        found = with_affinity(explained("web", source), lambda: rules.probes, entries, None)
        (port,) = found.ports
        assert {each.endpoint: each.clients for each in port.endpoints} == {LOCAL: 999_997, REMOTE: 3}
        assert (port.clients, found.pinned) == (1_000_000, ())
        text = format_explanation(found, None)
        assert "affinity  ClientIP, 10800 s; affinity entries: 1 000 000\n" in text
    assert entries.readings == 2
    some = KernelEntries(rules, {LOCAL: 100_000}, is_complete=False)
    found = with_affinity(explained("web", rules), lambda: rules.probes, some, None)
    assert found.ports[0].has_more_clients
    more = "100 000 or more: only the first ones of the node were counted\n"
    assert f"affinity  ClientIP, 10800 s; affinity entries: {more}" in format_explanation(found, None)


def test_client_is_pinned_at_the_frontends_that_use_its_entry() -> None:
    """With policy Local, hosts outside are never sent to the other node, so an entry for it has no effect there."""
    parts = _sticky(external_traffic_policy="Local")
    objects, rules = of_objects(*parts), of_rules(*parts)

    def pinned(seconds: dict[str, int]) -> list[str]:
        return _texts(
            with_affinity(explained("web", objects), lambda: rules.probes, KernelEntries(rules, {}, seconds), CLIENT)
        )

    longer = "or longer if it opens another connection"
    assert pinned({LOCAL: 3600}) == [
        f"client {CLIENT.address} is pinned to {LOCAL} at {AT_CLUSTER_IP} and {AT_NODE_PORT} for 1h0m0s, {longer}"
    ]
    # The NodePort has one local endpoint, which the client gets there without an entry.
    assert pinned({REMOTE: 90}) == [
        f"client {CLIENT.address} is pinned to {REMOTE} at {AT_CLUSTER_IP} for 1m30s, {longer}"
    ]


def test_client_without_entries() -> None:
    sticky, rules = of_objects(*_sticky()), of_rules(*_sticky())
    entries = KernelEntries(rules, {LOCAL: 1})
    found = with_affinity(explained("web", sticky), lambda: rules.probes, entries, CLIENT)
    assert _texts(found) == [
        f"client {CLIENT.address} has no affinity entry on this node that its connections to default/web:http use"
    ]
    # The kernel may have the table of one family only.
    ipv4 = {Family.IPV4: rules.probes[Family.IPV4]}
    other = with_affinity(explained("web", sticky), lambda: ipv4, entries, Client(Family.IPV6, "2001:db8::7"))
    assert _texts(other) == ["web has no IPv6 frontend, so client 2001:db8::7 is not pinned to an endpoint"]
    unknown = with_affinity(explained("shop/none", sticky), lambda: rules.probes, entries, CLIENT)
    assert unknown == explained("shop/none", sticky)


def test_service_port_without_affinity_reads_no_entries() -> None:
    plain = (service(cluster_ip="10.96.0.10"), endpoint_slice("web-1", "10.244.2.11", service="web"))

    def fail() -> Mapping[Family, Probes]:
        raise AssertionError

    rules = of_rules(*plain)
    found = with_affinity(explained("web", of_objects(*plain)), fail, KernelEntries(rules, {}), CLIENT)
    assert _texts(found) == [
        f"default/web:http has no session affinity, so client {CLIENT.address} is not pinned to an endpoint"
    ]
    assert (found.ports[0].clients, found.ports[0].endpoints[0].clients) == (None, None)


def test_entries_of_the_owner_of_a_contested_frontend_do_not_count() -> None:
    """``KernelEntries`` requires that only endpoint IDs of web are asked for."""
    claimed: dict[str, Any] = {"external_ips": ("203.0.113.5",)}
    rival = served("rival", "10.96.0.11", session_affinity="ClientIP", **claimed)
    objects = (*rival, *_sticky(**claimed))
    rules = of_rules(*objects)
    for source in (of_objects(*objects), rules):
        (port,) = with_affinity(explained("web", source), lambda: rules.probes, KernelEntries(rules, {}), None).ports
        assert {each.endpoint: each.clients for each in port.endpoints} == {LOCAL: 0, REMOTE: 0}
        assert _affinity(port) == "ClientIP, 10800 s; affinity entries: 0"
    (port,) = explained("web", of_objects(*objects)).ports
    assert [each.what for each in port.frontends if not each.is_owned] == ["203.0.113.5:80/tcp"]


def test_sets_of_earlier_versions_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their elements have other keys."""
    entries: Mapping[AffinityEntry, str] = {("ip knft affinity", (1, 2)): LOCAL}
    monkeypatch.setattr(Probes, "affinity_endpoints", lambda *_: entries)
    rules = of_rules(*_sticky())
    found = with_affinity(explained("web", rules), lambda: rules.probes, KernelEntries(rules, {}), None)
    assert found.ports[0].clients is None


@pytest.mark.parametrize("client", [NODE_IP, "10.244.1.11"])
def test_node_and_pods_are_clients_too(client: str) -> None:
    rules = of_rules(*_sticky())
    probes = rules.probes[Family.IPV4]
    (entry,) = (each for each, where in probes.affinity_endpoints("10.96.0.10", 80, "TCP").items() if where == REMOTE)
    assert probes.endpoints_of_client(client, frozenset({entry}), "10.96.0.10", 80, "TCP") == {REMOTE}
    assert probes.endpoints_of_client(client, frozenset(), "10.96.0.10", 80, "TCP") == {LOCAL, REMOTE}
