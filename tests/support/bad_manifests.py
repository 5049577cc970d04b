"""Invalid documents among valid ones: expected messages, and checks that the valid ones are served."""

from pathlib import Path
from typing import Any, NamedTuple

from knft.config import Config
from knft.nft.codec.tables import transaction_json
from knft.source.directory import DirectorySource
from knft.sync.assemble import rendering_daemon
from tests.support import fast_yaml
from tests.support.kernel_harness import check_schema

VALID_CLUSTER_IPS = frozenset({"10.96.0.1", "10.96.0.2", "10.96.0.3"})
"""The cluster IPs of the valid Services: before and after the invalid document, and in another file."""
CONFIG = Config("node-1", service_cidrs=("10.96.0.0/16",))


class ManifestCase(NamedTuple):
    """Invalid documents as text, the expected messages without the file's name, and the cluster IPs still served."""

    text: str
    problems: tuple[str, ...]
    served: frozenset[str] = frozenset()


class ScannedManifests(NamedTuple):
    """The messages of a scan, the cluster IPs that are then served, and the nft elements that serve them."""

    problems: tuple[str, ...]
    notices: tuple[str, ...]
    served: frozenset[str]
    elements: str


def service(name: str, number: int = 9, **spec: Any) -> dict[str, Any]:
    """Return a Service with one port."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": f"10.96.0.{number}", "ports": [{"port": 80}]} | spec,
    }


def service_text(metadata: str, spec: str = "{clusterIP: 10.96.0.9, ports: [{port: 80}]}") -> str:
    """Return a Service as YAML text with this metadata and spec."""
    return f"apiVersion: v1\nkind: Service\nmetadata: {metadata}\nspec: {spec}"


def endpoint_slice(name: str = "web", **fields: Any) -> dict[str, Any]:
    """Return an EndpointSlice with one endpoint, of the valid Service in the other file."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "other"}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080}],
        "endpoints": [{"addresses": ["10.244.2.1"]}],
    } | fields


def text(*documents: Any) -> str:
    """Return documents as YAML."""
    return fast_yaml.dump_all(documents)


def write_among_valid_documents(folder: Path, bad: str) -> None:
    """Write ``bad`` between two valid Services of one file, and a third into another file."""
    before, after = text(service("before", 1)), text(service("after", 2))
    (folder / "bad.yaml").write_text(f"{before}---\n{bad}\n---\n{after}")
    (folder / "other.yaml").write_text(text(service("other", 3)))


def scan_and_render(source: DirectorySource) -> ScannedManifests:
    """Scan, and render what is found: each transaction must be of known forms."""
    scan = source.scan()
    daemon, recorders = rendering_daemon(CONFIG)
    daemon.handle(scan.changes)
    assert daemon.sync()
    sent = [recorder.first_sync()[1] for recorder in recorders.values()]
    written = [transaction_json(transaction) for transaction in sent]
    for document in written:
        check_schema(document)
    served = frozenset(str(key[0]) for transaction in sent for key in transaction.added.get("cluster-ips", ()))
    return ScannedManifests(scan.problems, scan.notices, served, b"\n".join(written).decode())


def check_problems(folder: Path, row: ManifestCase) -> ScannedManifests:
    """Assert what is said, word for word, and that the good objects of this file and of the other are served."""
    write_among_valid_documents(folder, row.text)
    seen = scan_and_render(DirectorySource(str(folder)))
    assert seen.problems == tuple(f"{folder}/bad.yaml: {sentence}" for sentence in row.problems)
    assert seen.served == VALID_CLUSTER_IPS | row.served
    return seen
