"""``knft explain`` on a machine: from its tables alone, and beside manifests."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.knft_command import KNFT, knft
from tests.support.lab.namespace import Namespace
from tests.support.loaded_examples import EXAMPLES, NODE, machine_state

pytestmark = pytest.mark.kernel

OBJECTS = ("-f", str(EXAMPLES), *NODE)


def _explain(node: Namespace, *arguments: str, status: int = 0) -> dict[str, Any]:
    done = node.run([*KNFT, "explain", *arguments, "-o", "json"], check=False)
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_tables_are_explained_alone_and_beside_manifests(node: Namespace) -> None:
    knft(node, "run", "--once", "--manifests", str(EXAMPLES), *NODE)
    before = machine_state(node)
    alone = _explain(node, "shop/frontend")
    beside = _explain(node, "shop/frontend", *OBJECTS, "--live")
    assert [each["kind"] for each in beside["kernel"]] == ["kernel_equal"]
    assert [_outcomes(port) for port in alone["ports"]] == [_outcomes(port) for port in beside["ports"]]
    assert "kernel_served" in {each["kind"] for each in alone["conclusion"]}
    assert _explain(node, "192.0.2.11:30080")["conclusion"][0]["kind"] == "frontend"
    assert _explain(node, "shop/frontent", status=3)["conclusion"][1]["text"] == "did you mean shop/frontend?"
    assert machine_state(node) == before

    node.run(["nft", "delete table ip knft"])
    changed = _explain(node, "shop/frontend", *OBJECTS, "--live")
    assert [each["text"] for each in changed["kernel"]] == ["the kernel has no IPv4 table of knft"]


def _outcomes(port: dict[str, Any]) -> dict[str, Any]:
    return {frontend["what"]: frontend["outcomes"] for frontend in port["frontends"]}


def test_machine_without_tables_is_an_error(node: Namespace, tmp_path: Path) -> None:
    done = node.run([*KNFT, "explain", "shop/frontend"], check=False)
    assert done.returncode == 2
    no_table = "this machine has no table of knft: name manifests with -f"
    assert f"no knft process was found in this network namespace, and {no_table}" in done.stderr
    asked_for = node.run([*KNFT, "explain", "shop/frontend", "--source", "kernel"], check=False)
    assert no_table in asked_for.stderr
    assert "no knft process" not in asked_for.stderr
    (tmp_path / "empty.yaml").write_text("apiVersion: v1\nkind: List\nitems: []\n")
    nothing = _explain(node, "shop/frontend", "-f", str(tmp_path), *NODE, "--live", status=3)
    assert [each["kind"] for each in nothing["kernel"]] == ["kernel_no_table", "kernel_no_table"]
