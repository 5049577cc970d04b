"""The running knft as the source of ``knft explain``: the same explanation as from all objects, though few are read."""

import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from knft.cli.explain_text import format_explanation
from knft.comparison.captures import Rules
from knft.comparison.explained import kernel_rules, object_source
from knft.comparison.rendered import knft_rules
from knft.comparison.running import (
    MAX_READINGS,
    PAUSE_SECONDS,
    RunningExplainer,
    RunningObjects,
    read_objects,
    running_source,
)
from knft.config import Config
from knft.control.messages import SourceStatus
from knft.control.object_reader import ObjectReader
from knft.errors import CaptureError, KernelError, UnavailableError
from knft.explain.explain import explain
from knft.explain.explanation import Explanation
from knft.explain.query import parse_query
from knft.explain.sentences import Statement
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.model.objects import KubeObject, Labels, ObjectChange, ObjectMeta
from knft.model.objects import Node as NodeObject
from knft.nft.transaction import Transaction
from knft.source.decode import decode
from tests.support.cluster_strategies import NAMES
from tests.support.explain_sources import CONFIG, NODE_IP, served
from tests.support.explain_statements import checked_statements
from tests.support.explained_clusters import CONFIGS, OWN, clusters
from tests.support.kube_objects import endpoint_slice, service
from tests.support.memory_daemon import MemoryDaemon

QUESTIONS = (
    *NAMES,
    "a:http",
    "10.96.0.1",
    "10.96.0.2:80/udp",
    "203.0.113.1:81",
    "203.0.113.2",
    "fd00:10:96::1",
    "[2001:db8:cb::1]:80",
    ":30080",
    ":30081/udp",
    "192.0.2.11:30080",
    "10.244.0.1",
    "10.244.0.2:8080",
    "fd00:10:244::1",
    "10.9.9.9:80",
)


def _decoded(objects: list[dict[str, Any]]) -> tuple[KubeObject, ...]:
    return decode(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()).objects


def _additions(objects: Iterable[KubeObject]) -> tuple[ObjectChange, ...]:
    return tuple(ObjectChange(None, item) for item in objects)


def _all_objects(reader: ObjectReader) -> RunningObjects:
    slices = (item for family in Family for item in reader.slices_with(family, lambda _: True))
    return RunningObjects(reader.node(), reader.services(), tuple(slices), {})


@settings(max_examples=40)  # Three seconds.
@given(clusters(), clusters(), st.sampled_from(CONFIGS), st.lists(st.sampled_from(QUESTIONS), min_size=3, max_size=3))
def test_explanation_is_that_of_all_objects(
    objects: list[dict[str, Any]], others: list[dict[str, Any]], config: Config, questions: list[str]
) -> None:
    """Also the comparison with a kernel that has the rules of other objects."""
    daemon = MemoryDaemon(config, OWN)
    daemon.add(*_decoded(objects))
    kernel = kernel_rules(knft_rules(_additions(_decoded(others)), config, OWN), OWN)
    everything = running_source(_all_objects(daemon.reader))
    manifests = object_source(_additions(_decoded(objects)), config, OWN)
    for query in map(parse_query, questions):
        needed = running_source(read_objects(query, daemon.reader, kernel))
        found = explain(query, needed, kernel)
        assert found == explain(query, everything, kernel)
        assert checked_statements(found)
        alone = explain(query, running_source(read_objects(query, daemon.reader, None)))
        assert alone == replace(found, kernel=())
        expected = explain(query, manifests)
        assert (alone.ports, alone.outcomes, alone.found) == (expected.ports, expected.outcomes, expected.found)
        assert (alone.node, alone.zone) == (expected.node, expected.zone)


class Node:
    """A running knft with Service ``web``, and its kernel, whose rules are those of ``kernel`` when they are read."""

    def __init__(self, *objects: KubeObject) -> None:
        self.memory = MemoryDaemon(CONFIG, (NODE_IP,))
        self.memory.add(*objects)
        self.kernel: tuple[KubeObject, ...] = objects
        self.readings = 0
        self.before_reading: Callable[[], None] = lambda: None
        self.pauses: list[float] = []

    def read_rules(self) -> Rules:
        self.readings += 1
        self.before_reading()
        return knft_rules(_additions(self.kernel), CONFIG, (NODE_IP,))

    def explain(self, what: str = "web", *, compares: bool = True, requires_kernel: bool = False) -> Explanation:
        explainer = RunningExplainer(
            self.memory.reader,
            self.read_rules if compares else None,
            requires_kernel=requires_kernel,
            pause=self.pauses.append,
        )
        found = explainer.explain(parse_query(what))
        assert checked_statements(found)
        return found


WEB = served("web", "10.96.0.10")
MOVED = (WEB[0], endpoint_slice("web-1", "10.244.2.99"))
EQUAL = "the kernel's rules treat these packets in the same way"
DIFFERENT = "the kernel's rules treat packets to 10.96.0.10:80/tcp differently"


def _texts(statements: Iterable[Statement]) -> list[str]:
    return [each.text for each in statements]


@pytest.fixture
def node() -> Node:
    found = Node(*WEB)
    assert found.memory.daemon.sync()
    return found


def test_output_names_the_process_and_the_comparison(node: Node) -> None:
    found = node.explain()
    assert (found.source, found.node) == (f"the running knft (pid {os.getpid()})", "node-1")
    assert (_texts(found.kernel), found.sync, node.readings) == ([EQUAL], (), 1)
    assert node.explain(compares=False).kernel == ()
    assert node.readings == 1


def test_unwatched_resources_are_a_warning(node: Node) -> None:
    """Also in the comparison of two readings, between which the time may differ."""
    assert node.explain().warnings == ()
    seconds = {"services": 300.0, "nodes": 300.0, "endpointslices": 100_000.0}
    node.memory.source = SourceStatus("API server", "https://192.0.2.10:6443", unwatched_seconds=seconds)
    (warning,) = node.explain().warnings
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.fullmatch(
        f"knft has not watched endpointslices since {time} and services and nodes since {time}, so the objects may be "
        "old; knft status says why",
        warning,
    )
    node.kernel = MOVED
    assert (_texts(node.explain().kernel), node.readings) == ([DIFFERENT], 4)


def test_difference_is_reported_after_a_second_reading(node: Node) -> None:
    """The first reading does not tell whether the objects were in force when the kernel's rules were read."""
    node.kernel = MOVED
    found = node.explain()
    assert (_texts(found.kernel), found.sync) == ([DIFFERENT], ())
    assert (node.readings, node.pauses) == (2, [PAUSE_SECONDS])


def test_change_between_the_readings_is_no_difference(node: Node) -> None:
    """A pod is replaced after the kernel's rules were read, and before the objects are."""

    def replace_pod() -> None:
        if node.readings == 2:
            node.kernel = MOVED

    node.memory.add(*MOVED)
    node.memory.daemon.sync()
    node.before_reading = replace_pod
    found = node.explain()
    assert (_texts(found.kernel), node.readings) == ([EQUAL], 2)
    assert [each.endpoint for each in found.ports[0].endpoints] == ["10.244.2.99:8080"]


def test_change_that_stays_pending_is_named(node: Node) -> None:
    node.memory.add(*MOVED)
    found = node.explain()
    assert (_texts(found.kernel), node.readings) == ([DIFFERENT], MAX_READINGS)
    assert _texts(found.sync) == ["changes of IPv4 Services or endpoints wait for a sync"]
    text = format_explanation(found, None)
    assert f"\nkernel  {DIFFERENT}\nsync    changes of IPv4 Services or endpoints wait for a sync\n" in text


def test_failed_sync_is_named(node: Node) -> None:
    def refuse(_: Transaction) -> None:
        msg = "refused for the test"
        raise UnavailableError(msg)

    node.memory.tables[Family.IPV4].on_commit = refuse
    node.memory.add(*MOVED)
    assert not node.memory.daemon.sync()
    found = node.explain()
    assert _texts(found.kernel) == [DIFFERENT]
    assert _texts(found.sync) == ["the last IPv4 sync failed, and knft retries it: refused for the test"]


def test_quarantined_service_port_is_named(node: Node) -> None:
    def refuse(transaction: Transaction) -> None:
        if any("10.96.0.66" in key for added in transaction.added.values() for key in added):
            msg = "refused for the test"
            raise KernelError(msg)

    node.memory.tables[Family.IPV4].on_commit = refuse
    node.memory.add(*served("bad", "10.96.0.66"))
    assert node.memory.daemon.sync()
    quarantined = "Service port default/bad:http is quarantined, and knft retries it: refused for the test"
    assert _texts(node.explain("bad").sync) == [quarantined]
    assert _texts(node.explain("10.96.0.66:80").sync) == [quarantined]
    assert node.explain("web").sync == ()


def test_changed_table_is_named_unless_the_rules_agree(node: Node) -> None:
    node.memory.daemon.foreign_changes.record(ForeignChange(Family.IPV4, frozenset({"services"}), process="nft"))
    assert node.explain().sync == ()
    changed = "another program changed the IPv4 table, and knft has not checked it yet"
    assert _texts(node.explain(compares=False).sync) == [changed]
    node.kernel = MOVED
    assert _texts(node.explain("10.96.0.10").sync) == [changed]
    assert node.explain("fd00:10:96::1", compares=False).sync == ()


def test_objects_before_the_first_sync_are_not_in_force() -> None:
    """Without an explained Service port, both families are named."""
    sync = Node(*WEB).explain("nope", compares=False).sync
    assert _texts(sync) == [f"no {family} sync has succeeded since knft started" for family in ("IPv4", "IPv6")]


def test_table_of_an_older_version_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.memory.daemon.foreign_changes, "is_left", lambda family: family is Family.IPV4)
    node.kernel = ()
    found = node.explain()
    assert _texts(found.sync) == ["knft leaves the IPv4 table to an older version of knft that runs"]


def test_kernel_that_cannot_be_read_is_not_compared(node: Node) -> None:
    def fail() -> None:
        msg = "cannot be read"
        raise CaptureError(msg)

    node.before_reading = fail
    assert _texts(node.explain().kernel) == ["the kernel's rules were not compared: cannot be read"]
    with pytest.raises(CaptureError, match="cannot be read"):
        node.explain(requires_kernel=True)


def test_services_that_knft_does_not_have_may_exist() -> None:
    """It reads neither headless Services nor those of other proxies."""
    node = Node(
        *WEB,
        service("foreign", cluster_ip="10.96.0.20", labels=Labels(proxy_name="other")),
        endpoint_slice("foreign-1", "10.244.3.1", service="foreign"),
    )
    unknown = (
        "the running knft has no Service default/foreign: it does not exist, is headless, or has label "
        "service.kubernetes.io/service-proxy-name"
    )

    def first_line(what: str) -> str:
        return "; ".join(_texts(node.explain(what, compares=False).conclusion))

    assert first_line("foreign") == unknown
    assert first_line("10.244.3.1") == f"10.244.3.1 is in an EndpointSlice of Service default/foreign; {unknown}"
    assert first_line("wep").endswith("; did you mean default/web?")
    assert first_line("10.96.0.20").startswith("knft's rules have no frontend at 10.96.0.20; 10.96.0.0/16 is a Serv")
    assert first_line("web:x").startswith("knft's rules have no frontend of port 'x' of Service default/web, only of ")
    assert not node.explain("foreign", compares=False).found


def test_slices_of_other_services_are_not_read() -> None:
    node = Node(*WEB, *served("other", "10.96.0.11"))
    node.explain("web", compares=False)
    node.explain("10.96.0.11:80", compares=False)
    assert not any("/endpointslices/" in path for path in node.memory.paths)
    assert [path for path in node.memory.paths if path.startswith("/objects/services/default/")] == [
        "/objects/services/default/web/",
        "/objects/services/default/other/",
    ]


def test_warning_of_the_daemon_is_printed() -> None:
    node = Node(NodeObject(ObjectMeta("node-7")), *WEB)
    assert node.explain(compares=False).warnings == ("--node: there is no Node 'node-1'; the Nodes are node-7",)
