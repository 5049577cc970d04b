"""The shop in a running knft that is behind: it does not watch EndpointSlices, and its last sync failed."""

import json
from typing import Any

from msgspec.structs import replace

from knft.apiserver.endpoint_pods import decode_pods
from knft.comparison.captures import Rules
from knft.comparison.rendered import knft_rules
from knft.comparison.running import RunningExplainer
from knft.control.object_reader import ObjectReader
from knft.control.objects import NodeObjects
from knft.errors import UnavailableError
from knft.explain.explanation import Explanation
from knft.explain.query import parse_query
from knft.families import Family
from knft.model.endpoint_pod import EndpointPod
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, ObjectChange
from knft.nft.transaction import Transaction
from knft.source.decode import decode
from tests.support.explain_sources import CONFIG
from tests.support.memory_daemon import MemoryDaemon
from tests.support.shop import OBJECTS

_UNWATCHED_SINCE = 1_785_000_000.0


class _Reader(ObjectReader):
    """Reads objects of which the process and the time are always the same."""

    def node(self) -> NodeObjects:
        return replace(super().node(), pid=4321, unwatched_since={"endpointslices": _UNWATCHED_SINCE})

    def pods(self, service: NamespacedName) -> tuple[EndpointPod, ...]:
        label = {"kubernetes.io/service-name": service.name}
        slices: list[Any] = [item for item in OBJECTS if item["kind"] == "EndpointSlice"]
        items = [
            item
            for item in slices
            if (item["metadata"]["namespace"], item["metadata"]["labels"]) == (service.namespace, label)
        ]
        return decode_pods(json.dumps({"metadata": {}, "items": items}).encode()).pods


def explain_running_shop(what: str) -> Explanation:
    """Explain WHAT; the kernel has the rules of the Services without endpoints in IPv4."""
    objects = decode(json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}).encode()).objects
    before = tuple(item for item in objects if not (isinstance(item, EndpointSlice) and item.address_type == "IPv4"))
    daemon = MemoryDaemon(CONFIG, CONFIG.node_ips)
    daemon.add(*before)
    assert daemon.daemon.sync()
    daemon.tables[Family.IPV4].on_commit = _refuse
    daemon.add(*objects)
    assert not daemon.daemon.sync()

    def rules() -> Rules:
        return knft_rules(tuple(ObjectChange(None, item) for item in before), CONFIG, CONFIG.node_ips)

    reader = _Reader(lambda path: daemon.respond(path).body)
    return RunningExplainer(reader, rules, pause=lambda _: None).explain(parse_query(what))


def _refuse(_: Transaction) -> None:
    msg = "refused for the test"
    raise UnavailableError(msg)
