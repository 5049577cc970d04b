"""``knft run`` with a misspelt ``--node`` keeps the NodePorts in the kernel, unless a flag accepts their removal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel_harness import service, slices
from tests.support.knft_command import KNFT, knft, write_manifests
from tests.support.lab.namespace import Namespace
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.kernel
ADDRESS = "192.0.2.11"
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}]},
}
MISSING = "--node: there is no Node 'nod-1'; the Nodes are node-1"
REFUSAL = (
    f"knft: {MISSING}; knft would remove the NodePorts at {ADDRESS} and the local endpoints 10.244.2.1 (IPv4): "
    "correct the settings, or accept this with --allow-node-mismatch"
)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace.create("mismatch")
    made.run(["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"])
    yield made
    made.close()


def _table(namespace: Namespace) -> str:
    return namespace.run(["nft", "list", "table", "ip", "knft"]).stdout


def test_misspelt_node_changes_no_rule(namespace: Namespace, tmp_path: Path) -> None:
    write_manifests(tmp_path, [NODE, service("web", 1, node_port=30080), *slices("web", [1, 2], local=[1])])
    arguments = ["run", "--manifests", str(tmp_path), "--node"]
    knft(namespace, *arguments, "node-1", "--once")
    before = _table(namespace)
    assert f"elements = {{ {ADDRESS} }}" in before
    refused = knft(namespace, *arguments, "nod-1", "--once", check=False)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (2, REFUSAL)
    assert _table(namespace) == before
    # The daemon exits too, and says nothing else.
    daemon = namespace.popen([*KNFT, *arguments, "nod-1"], stderr=-1)
    _, error = daemon.communicate(timeout=TIMEOUT)
    assert (daemon.returncode, error.splitlines()[-1]) == (2, REFUSAL)
    assert _table(namespace) == before
    # A file that cannot be read at the start delays the refusal until nothing has to be kept any more.
    broken = tmp_path / "broken.yaml"
    broken.write_text("{")
    daemon = namespace.popen([*KNFT, *arguments, "nod-1"], stderr=-1)
    while "removes no rules" not in (daemon.stderr.readline() if daemon.stderr else ""):
        assert daemon.poll() is None
    broken.write_text("apiVersion: v1\nkind: List\nitems: []\n")
    _, error = daemon.communicate(timeout=TIMEOUT)
    assert (daemon.returncode, error.splitlines()[-1]) == (2, REFUSAL)
    assert _table(namespace) == before
    accepted = knft(namespace, *arguments, "nod-1", "--once", "--allow-node-mismatch").stderr
    assert MISSING in accepted
    assert ADDRESS not in _table(namespace)
