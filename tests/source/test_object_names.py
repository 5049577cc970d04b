"""Names and comments never become nft syntax: any object loads, with the expected elements."""

import json
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knft.cli.commands import cli
from knft.nft.codec.elements import comment_text
from tests.support.bad_manifests import endpoint_slice, service
from tests.support.kernel_harness import check_schema
from tests.support.lab.namespace import Namespace

EDGES, INNER = string.ascii_lowercase + string.digits, string.ascii_lowercase + string.digits + "-."
HOSTILE = (
    '"} ; flush ruleset',
    "a\nflush ruleset",
    "a # b",
    "$(reboot)",
    "@services",
    'a" comment "b',
    "\\",
    "\x00",
    "é",
    "🙂",
)

valid = st.builds(
    lambda first, inner, last: first + inner + last,
    st.sampled_from(EDGES), st.text(INNER, max_size=40), st.sampled_from(EDGES),
)  # fmt: skip
"""Valid names, with all allowed characters."""
hostile_or_any_text = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))
names = st.one_of(valid, valid, hostile_or_any_text)
port_names = st.one_of(st.text(string.ascii_letters + string.digits, max_size=10), st.just("a-b"), hostile_or_any_text)


@st.composite
def clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return Services with valid and hostile names, labels and times, and slices that may belong to them."""
    objects = []
    for number in range(1, draw(st.integers(2, 5))):
        name = draw(names)
        item = service(name, number, ports=[{"name": draw(port_names), "port": 80}])
        item["spec"] |= draw(st.sampled_from([{}, {"sessionAffinity": "ClientIP"}]))
        item["metadata"] |= {
            "namespace": draw(st.one_of(st.just("default"), hostile_or_any_text)),
            "creationTimestamp": draw(hostile_or_any_text),
            "labels": {
                "topology.kubernetes.io/zone": draw(hostile_or_any_text),
                draw(hostile_or_any_text): draw(hostile_or_any_text),
            },
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": draw(hostile_or_any_text)},
        }
        label = {"kubernetes.io/service-name": draw(st.one_of(st.just(name), hostile_or_any_text))}
        ports = [{"name": item["spec"]["ports"][0]["name"], "port": 8080}]
        hints = {"forZones": [{"name": draw(hostile_or_any_text)}]}
        endpoints = [
            {"addresses": [f"10.244.2.{number}"], "nodeName": draw(hostile_or_any_text), "hints": hints},
            {"addresses": [draw(hostile_or_any_text)]},
        ]
        objects += [
            item,
            endpoint_slice(metadata={"name": draw(valid), "labels": label}, ports=ports, endpoints=endpoints),
        ]
    return objects


def _render(folder: Path, output_format: str) -> str:
    result = CliRunner().invoke(cli, ["render", "-f", str(folder), "--node", "node-1", "-o", output_format])
    assert result.exit_code == 0, result.output
    return result.stdout


def _declared_counts(text: str, documents: list[dict[str, Any]]) -> Counter[str]:
    """Count the objects in a text, and the elements in the JSON of the same ruleset."""
    lines = [line.split() for line in text.splitlines()]
    counts = Counter(line[0] for line in lines if line and line[0] in ("table", "chain", "set", "map"))
    commands = [command for document in documents for command in document["nftables"]]
    counts["element"] = sum(
        len(item["add"]["element"]["elem"]) for item in commands if "element" in item.get("add", {})
    )
    return counts


def _listed_counts(namespace: Namespace) -> Counter[str]:
    items = json.loads(namespace.run(["nft", "-j", "list", "ruleset"]).stdout)["nftables"]
    counts = Counter(kind for item in items for kind in item if kind in ("table", "chain", "set", "map"))
    containers = [item[kind] for item in items for kind in ("set", "map") if kind in item]
    counts["element"] = sum(len(item.get("elem", ())) for item in containers)
    return counts


@pytest.mark.kernel
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(objects=clusters())
def test_names_never_become_syntax(tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, Any]]) -> None:
    """The kernel lists as many objects as the text declares, and the JSON matches the schema."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    text = _render(folder, "text")
    lines = _render(folder, "json").splitlines()
    for line in lines:
        check_schema(line.encode())
    namespace = Namespace.create("names")
    try:
        namespace.run(["nft", "-f", "-"], stdin=text)
        assert _listed_counts(namespace) == _declared_counts(text, [json.loads(line) for line in lines])
    finally:
        namespace.close()


@given(comment=st.text(max_size=300))
def test_comment_is_valid_for_every_library_version(comment: str) -> None:
    written = comment_text(comment)
    assert len(written.encode()) <= 128
    assert written.isprintable()
    assert not set(written) & set('"\\\n')


@pytest.mark.kernel
@settings(max_examples=30, deadline=None)
@given(comments=st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=300)), min_size=1, max_size=20))
def test_any_comment_loads_as_one_element(comments: list[str]) -> None:
    """This includes comments that no valid object produces."""
    texts = [comment_text(comment) or "-" for comment in comments]
    elements = ",".join(f'10.0.0.{number} comment "{comment}"' for number, comment in enumerate(texts))
    namespace = Namespace.create("comments")
    try:
        namespace.run(["nft", "-f", "-"], stdin=f"add table ip t\nadd set ip t s {{ type ipv4_addr; }}\n"
                      f"add element ip t s {{ {elements} }}\n")  # fmt: skip
        items = json.loads(namespace.run(["nft", "-j", "list", "set", "ip", "t", "s"]).stdout)["nftables"]
        assert [item["elem"]["comment"] for item in items[1]["set"]["elem"]] == texts
    finally:
        namespace.close()
