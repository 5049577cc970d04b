"""Names never become syntax: any object loads, with the expected elements."""

import json
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knft.cli.main import cli
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
"""Names that the API allows, with each of its characters."""
words = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))
names = st.one_of(valid, valid, words)
port_names = st.one_of(st.text(string.ascii_letters + string.digits, max_size=10), st.just("a-b"), words)


@st.composite
def clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return Services with names, labels and times of every sort, and slices that may belong to them."""
    objects = []
    for number in range(1, draw(st.integers(2, 5))):
        name = draw(names)
        item = service(name, number, ports=[{"name": draw(port_names), "port": 80}])
        item["spec"] |= draw(st.sampled_from([{}, {"sessionAffinity": "ClientIP"}]))
        item["metadata"] |= {
            "namespace": draw(st.one_of(st.just("default"), words)),
            "creationTimestamp": draw(words),
            "labels": {"topology.kubernetes.io/zone": draw(words), draw(words): draw(words)},
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": draw(words)},
        }
        label = {"kubernetes.io/service-name": draw(st.one_of(st.just(name), words))}
        ports = [{"name": item["spec"]["ports"][0]["name"], "port": 8080}]
        hints = {"forZones": [{"name": draw(words)}]}
        endpoints = [
            {"addresses": [f"10.244.2.{number}"], "nodeName": draw(words), "hints": hints},
            {"addresses": [draw(words)]},
        ]
        objects += [
            item,
            endpoint_slice(metadata={"name": draw(valid), "labels": label}, ports=ports, endpoints=endpoints),
        ]
    return objects


def _rendered(folder: Path, form: str) -> str:
    done = CliRunner().invoke(cli, ["render", "-f", str(folder), "--node", "node-1", "-o", form])
    assert done.exit_code == 0, done.output
    return done.stdout


def _written(text: str, documents: list[dict[str, Any]]) -> Counter[str]:
    """Count the objects that a text declares, and the elements that the same ruleset has as JSON."""
    lines = [line.split() for line in text.splitlines()]
    found = Counter(line[0] for line in lines if line and line[0] in ("table", "chain", "set", "map"))
    commands = [command for document in documents for command in document["nftables"]]
    found["element"] = sum(len(item["add"]["element"]["elem"]) for item in commands if "element" in item.get("add", {}))
    return found


def _listed(namespace: Namespace) -> Counter[str]:
    items = json.loads(namespace.run(["nft", "-j", "list", "ruleset"]).stdout)["nftables"]
    found = Counter(kind for item in items for kind in item if kind in ("table", "chain", "set", "map"))
    containers = [item[kind] for item in items for kind in ("set", "map") if kind in item]
    found["element"] = sum(len(item.get("elem", ())) for item in containers)
    return found


@pytest.mark.kernel
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(objects=clusters())
def test_names_never_become_syntax(tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, Any]]) -> None:
    """The text declares as much as the kernel lists after loading it, and the JSON has only known forms."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    text = _rendered(folder, "text")
    lines = _rendered(folder, "json").splitlines()
    for line in lines:
        check_schema(line.encode())
    namespace = Namespace.create("names")
    try:
        namespace.run(["nft", "-f", "-"], stdin=text)
        assert _listed(namespace) == _written(text, [json.loads(line) for line in lines])
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
    """Also one that no object could lead to."""
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
