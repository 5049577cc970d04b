"""Turns the events of one mode's tests into the corpus: a document for each test, with the syncs of each proxier.

A test makes one or more proxiers. A proxier gets objects, syncs, gets changes, and syncs again. A document has all that
a reader needs to repeat this::

    {"test": "TestNodePorts", "mode": "iptables", "proxiers": [
        {"name": "TestNodePorts/ipv4", "configuration": {...}, "syncs": [
            {"objects": [...], "deleted": [...], "configuration": {...}, "result": {...}, "flows": [...]}]}]}

``objects`` are those that the test added or changed since the sync before, ``deleted`` the kinds and names of deleted
ones; ``configuration`` of a sync has the settings that differ from the proxier's. ``result`` has the rules, and
``flows`` the packets that the test sends through them with the expected outcome. ``asserted`` tells whether the test
compares the rules with literal ones.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.upstream.normalize import normalized

Event = dict[str, Any]
Document = dict[str, Any]


def documents(mode: str, events: Iterable[Event]) -> list[Document]:
    """Return the documents of one mode, sorted by test."""
    assembly = _Assembly(mode)
    for event in events:
        assembly.add(event)
    return [assembly.documents[test] for test in sorted(assembly.documents)]


def topology_document(events: list[Event]) -> Document:
    """Return the document of the test that selects endpoints: each call of the tested function is a case."""
    kept = [{key: value for key, value in event.items() if key not in ("event", "test")} for event in events]
    names = [event["test"].partition("/")[2] for event in events]
    cases = [{"name": name, **fields} for name, fields in zip(names, kept, strict=True)]
    return {"test": "TestCategorizeEndpoints", "cases": cases}


class _Assembly:
    """Collects the events of one mode. A proxier is identified by its two change trackers."""

    def __init__(self, mode: str) -> None:
        self.documents: dict[str, Document] = {}
        self._mode = mode
        self._proxiers: dict[tuple[int, ...], Document] = {}
        self._pending: dict[int, dict[tuple[str, str], Event]] = {}
        self._last_test = ""
        self._last_sync: Document = {}

    def add(self, event: Event) -> None:
        """Add one event. Assertions and packets are about the last sync, and those before the first one about none."""
        test, _, _ = event["test"].partition("/")
        if event["event"] == "object":
            self._pending.setdefault(event["tracker"], {})[event["kind"], event["name"]] = event
        elif event["event"] == "sync":
            self._add_sync(test, event)
        elif test == self._last_test:
            _add_check(event, self._last_sync)

    def _add_sync(self, test: str, event: Event) -> None:
        proxier = self._proxier(test, event)
        changes = [it for tracker in event["trackers"] for it in self._pending.pop(tracker, {}).values()]
        self._last_test, self._last_sync = test, _sync(self._mode, event, changes, proxier["configuration"])
        proxier["syncs"].append(self._last_sync)

    def _proxier(self, test: str, event: Event) -> Document:
        trackers = tuple(event["trackers"])
        if trackers not in self._proxiers:
            document = self.documents.setdefault(test, {"test": test, "mode": self._mode, "proxiers": []})
            found = {"name": event["test"], "configuration": event["configuration"], "syncs": []}
            earlier = sum(it["name"].partition(" (")[0] == event["test"] for it in document["proxiers"])
            if earlier:
                found["name"] += f" ({earlier + 1})"
            document["proxiers"].append(found)
            self._proxiers[trackers] = found
        return self._proxiers[trackers]


def _sync(mode: str, event: Event, changes: list[Event], configuration: dict[str, Any]) -> Document:
    changed = (change for change in changes if change["object"] is not None)
    sync: Document = {
        "objects": [_with_kind(mode, change) for change in changed],
        "deleted": [f"{change['kind']} {change['name']}" for change in changes if change["object"] is None],
        "configuration": {
            key: value for key, value in event["configuration"].items() if value != configuration.get(key)
        },
        "result": {name: _sorted(name, value) for name, value in event["result"].items()},
        "failed": event["failed"],
    }
    return {key: value for key, value in sync.items() if value}


def _with_kind(mode: str, change: Event) -> Document:
    found = {"apiVersion": change["apiVersion"], "kind": change["kind"], **change["object"]}
    if mode == "ipvs" and "externalIPs" in found.get("spec", {}):
        # A test of this mode takes them from a hash table. Their order does not matter to ipsets and virtual servers.
        found["spec"]["externalIPs"].sort()
    return found


def _sorted(name: str, value: Any) -> Any:
    """Return rules in an order that is the same in each run."""
    if name == "iptables-restore":
        return normalized(value)
    if name == "nft":
        lines = [line for line in value if line]
        # The elements of sets and maps are the last lines, in random order.
        return sorted(lines, key=lambda line: line if line.startswith("add element ") else "")
    return value


def _add_check(event: Event, sync: Document) -> None:
    if event["event"] == "asserted":
        sync["asserted"] = True
    else:
        kept = ("name", "source", "protocol", "destination", "port", "output", "masquerade")
        sync.setdefault("flows", []).append({key: event[key] for key in kept})


def format_document(document: Document) -> str:
    """Return a document as JSON, with one line for each object, rule and packet."""
    return "".join(_format(document, 0)) + "\n"


_ON_ONE_LINE = ("configuration", "objects[]", "flows[]", "ipsets", "servers", "endpoints[]", "cluster", "local", "all")


def _format(value: Any, depth: int, key: str = "") -> Iterator[str]:
    if not value or not isinstance(value, dict | list) or key in _ON_ONE_LINE:
        yield json.dumps(value, sort_keys=True, ensure_ascii=False)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    items = value.items() if isinstance(value, dict) else ((f"{key}[]", item) for item in value)
    indent = "\n" + " " * (depth + 1)
    yield opening
    for index, (name, item) in enumerate(items):
        yield ("," if index else "") + indent + (f"{json.dumps(name)}: " if isinstance(value, dict) else "")
        yield from _format(item, depth + 1, name)
    yield indent[:-1] + closing
