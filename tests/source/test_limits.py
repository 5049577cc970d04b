"""Objects at the limits of the API, and hostile files that must not exhaust memory or time."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from knft.source.decode import decode
from knft.source.directory import DirectorySource
from tests.support.bad_manifests import endpoint_slice, scan_and_render, service, text
from tests.support.broken_files import BROKEN
from tests.support.knft_command import NODE_FLAG, knft
from tests.support.lab.namespace import Namespace
from tests.support.log_lines import messages
from tests.support.waiting import wait_until

EVERY_CHARACTER = "abcdefghijklmnopqrstuvwxyz0123456789"
LONGEST_NAME = f"{EVERY_CHARACTER}-{EVERY_CHARACTER}.{EVERY_CHARACTER}" + "a" * 142 + "0"
LONGEST_NAMESPACE = f"{EVERY_CHARACTER}-{'z' * 26}"
LONGEST_PORT = f"{EVERY_CHARACTER}-{'a' * 26}"
ADDRESS_SPACE = 1 << 30
"""The memory limit, in bytes, of a process that decodes a hostile file."""


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    namespace = Namespace.create("limits")
    yield namespace
    namespace.close()


def _elements(namespace: Namespace, kind: str, name: str) -> list[Any]:
    listed = json.loads(namespace.run(["nft", "-j", "list", kind, "ip", "knft", name]).stdout)
    elements: list[Any] = listed["nftables"][1][kind].get("elem", [])
    return elements


def _sync(namespace: Namespace, folder: Path, *flags: str) -> str:
    return knft(namespace, "run", "--once", "--manifests", str(folder), *NODE_FLAG, *flags).stderr


@pytest.mark.kernel
def test_names_at_the_length_limits(namespace: Namespace, tmp_path: Path) -> None:
    """The names have every allowed character. The comment is truncated, and a restart writes nothing."""
    assert (len(LONGEST_NAME), len(LONGEST_NAMESPACE), len(LONGEST_PORT)) == (253, 63, 63)
    longest = service("x", ports=[{"name": LONGEST_PORT, "port": 80}, {"name": "Z-9", "port": 81}])
    longest["metadata"] = {"name": LONGEST_NAME, "namespace": LONGEST_NAMESPACE}
    (tmp_path / "a.yaml").write_text(text(longest))
    assert messages(_sync(namespace, tmp_path), "W") == []
    (first, second) = _elements(namespace, "map", "no-endpoint-services")
    comments = {item[0]["elem"]["comment"] for item in (first, second)}
    assert comments == {f"{LONGEST_NAMESPACE}/{LONGEST_NAME}"[:128]}
    assert _sync(namespace, tmp_path).count(": 0 elements added, 0 removed, 0 chains written") == 2


@pytest.mark.kernel
@pytest.mark.parametrize("slices", [1, 5])
def test_five_thousand_endpoints_in_one_service(namespace: Namespace, tmp_path: Path, slices: int) -> None:
    addresses = [f"10.244.{number // 250}.{number % 250 + 1}" for number in range(5000)]
    parts = [
        endpoint_slice(f"part-{part}", endpoints=[{"addresses": [address]} for address in addresses[part::slices]])
        for part in range(slices)
    ]
    (tmp_path / "a.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [service("other"), *parts]})
    )
    assert messages(_sync(namespace, tmp_path), "W") == []

    def values() -> set[str]:
        return {item[1]["concat"][0] for item in _elements(namespace, "map", "endpoints-tcp")}

    # A listing lacks some elements while the kernel moves them to a larger hash table.
    wait_until(lambda: values() == set(addresses), lambda: values() ^ set(addresses))


@pytest.mark.kernel
def test_250_services_with_node_ports(namespace: Namespace, tmp_path: Path) -> None:
    ports = [{"name": f"p{number}", "port": 1000 + number, "nodePort": 30000 + number} for number in range(250)]
    (tmp_path / "a.yaml").write_text(text(service("many", type="NodePort", ports=ports)))
    assert messages(_sync(namespace, tmp_path, "--nodeport-addresses", "all"), "W") == []
    assert len(_elements(namespace, "map", "no-endpoint-nodeports")) == 250


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_annotation_of_10_mib_is_skipped(tmp_path: Path, dump: Any) -> None:
    large = service("large")
    large["metadata"]["annotations"] = {"note": "x" * (10 << 20)}
    (tmp_path / "a.yaml").write_text(dump(large))
    result = scan_and_render(DirectorySource(str(tmp_path)))
    assert result.problems == ()
    assert result.served == {"10.96.0.9"}


def test_unused_fields_are_ignored() -> None:
    """The output of ``kubectl get --show-managed-fields`` has such fields."""
    item = service("web")
    item["metadata"]["managedFields"] = [
        {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}}}}}}
    ]
    item["spec"]["trafficDistribution"] = item["spec"]["x"] = [[{}]]
    assert len(decode(yaml.safe_dump(item).encode()).objects) == 1
    assert decode(json.dumps(item).encode()).problems == ()


def test_deeply_nested_unused_values_are_accepted() -> None:
    item = service("web")
    deep: dict[str, Any] = {}
    for _ in range(90):
        deep = {"a": deep}
    item["spec"]["x"] = deep
    assert len(decode(yaml.safe_dump(item).encode()).objects) == 1
    item["spec"]["ports"] = None
    assert len(decode(json.dumps(item).encode()).objects) == 1


_WIDE_SLICE = "- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: *e}\n"
WIDE = f"kind: List\nx: &e [{'{addresses: [10.244.2.1]}, ' * 1000}]\nitems:\n{_WIDE_SLICE * 10_000}"
"""A file of one MiB whose aliases expand to ten million endpoints."""


@pytest.mark.parametrize(
    "data",
    [
        *(pytest.param(BROKEN[name][0], id=name) for name in BROKEN if "thousand" in name or "laughs" in name),
        pytest.param(WIDE.encode(), id="ten million endpoints by alias"),
        pytest.param(b"a: &a " + b"[&b [" * 50 + b"]]" * 50, id="nested anchors"),
        pytest.param(b'"' + b"\\\n" * 1_000_000, id="text of a million lines"),
        pytest.param(b"? " * 100_000, id="nested complex keys"),
        pytest.param(b"{" * 1_000_000, id="a million braces"),
        pytest.param(b"a: " + b"9" * 5_000_000, id="number of five million digits"),
        pytest.param(b"x: [" + b"1," * 1_000_000 + b"]", id="a million numbers"),
        pytest.param(b"---\n" * 200_000, id="200 000 documents"),
        pytest.param(b"".join(b"k%d: &k%d\n" % (n, n) for n in range(50_000)), id="50 000 anchors"),
        pytest.param(b"a: 1\n" * 200_000, id="200 000 duplicate keys"),
        pytest.param(b"%TAG ! " + b"x" * 1_000_000, id="directive of a million characters"),
        pytest.param(b"&" + b"a" * 1_000_000, id="anchor of a million characters"),
    ],
)
def test_yaml_bomb_stays_within_memory_and_time_limits(data: bytes) -> None:
    """Decoding succeeds or raises SourceError; a crash, such as a stack overflow, fails the test."""
    code = "import sys\nfrom knft.errors import SourceError\nfrom knft.source.decode import decode\n"
    code += "try: decode(sys.stdin.buffer.read())\nexcept SourceError: pass"
    process = subprocess.run(
        [sys.executable, "-c", code],
        input=data,
        capture_output=True,
        check=False,
        timeout=30,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
    )
    assert (process.returncode, process.stderr.decode()[-500:]) == (0, "")
