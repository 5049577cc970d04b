"""MetalLB in the cluster: its own programs and manifests, in layer 2 mode, without webhooks."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.cluster import objects as cluster_objects
from deploy.cluster.cluster import Cluster
from deploy.cluster.images import StaticImage, static_archive
from deploy.image.errors import ImageError
from deploy.programs import cache
from deploy.programs.build import METALLB, metallb_programs
from deploy.programs.errors import SetupError
from deploy.programs.modules import module_folder

_MODULE = "go.universe.tf/metallb"
_NAMESPACE = "metallb-system"
_MANIFEST = "config/manifests/metallb-native.yaml"
_COMPONENTS = ("controller", "speaker")
_SECONDS = 3600
"""How long to wait for MetalLB. Nothing is measured by it."""
_FIRST, _LAST = 200, 209
"""The addresses for load balancers in the network of the nodes."""


def metallb_images() -> tuple[Path, ...]:
    """Return the OCI archives of MetalLB under upstream's names; build what is missing. Raise SetupError on failure."""
    programs, (version, _) = metallb_programs(), _pinned()
    folder = cache.cache_folder() / "metallb-images"
    folder.mkdir(exist_ok=True)
    with cache.locked(folder):
        try:
            return tuple(
                static_archive(
                    folder,
                    StaticImage(f"quay.io/metallb/{name}:{version}", (f"/{name}",), {name: Path(programs.path(name))}),
                )
                for name in _COMPONENTS
            )
        except ImageError as error:
            raise SetupError(str(error)) from error


def _pinned() -> tuple[str, str]:
    """Return the version of MetalLB and the checksum of its module."""
    found = re.search(rf"^{re.escape(_MODULE)} (v\S+) (h1:\S+)$", (METALLB / "go.sum").read_text(), re.MULTILINE)
    if found is None:
        msg = f"{METALLB / 'go.sum'} has no checksum of {_MODULE}"
        raise SetupError(msg)
    return found[1], found[2]


def metallb_objects() -> Iterator[dict[str, Any]]:
    """Yield the objects of MetalLB's own manifest that the cluster needs; raise SetupError if it is not available."""
    version, checksum = _pinned()
    yield from reduced_objects((module_folder(_MODULE, version, checksum) / _MANIFEST).read_text())


def reduced_objects(manifest: str) -> Iterator[dict[str, Any]]:
    """Yield the objects without the webhooks: the API server of this cluster reaches no Service."""
    for item in yaml.safe_load_all(manifest):
        if item["kind"] == "ValidatingWebhookConfiguration":
            continue
        if item["kind"] == "CustomResourceDefinition":
            item["spec"].pop("conversion", None)
        if item["kind"] == "Deployment":
            container = item["spec"]["template"]["spec"]["containers"][0]
            container["args"] += ["--webhook-mode=disabled", "--disable-cert-rotation"]
        yield item


def pool_objects(addresses: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the pool of load balancers in the nodes' network; ``addresses`` are those of a machine in it."""
    ranges = [f"{_with_number(address, _FIRST)}-{_with_number(address, _LAST)}" for address in addresses]
    metadata = {"name": "nodes", "namespace": _NAMESPACE}
    kinds = {"IPAddressPool": {"addresses": ranges}, "L2Advertisement": {"ipAddressPools": ["nodes"]}}
    for kind, spec in kinds.items():
        yield {"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def _with_number(address: str, number: int) -> str:
    """Return the address of the same network whose last group is a number."""
    separator = ":" if ":" in address else "."
    return f"{address.rpartition(separator)[0]}{separator}{number}"


def start_metallb(cluster: Cluster) -> None:
    """Start MetalLB in a cluster that has its images, and wait until it is ready; raise SetupError if it fails."""
    installed = list(metallb_objects())
    _apply(cluster, (item for item in installed if item["kind"] in ("Namespace", "CustomResourceDefinition")))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", f"--timeout={_SECONDS}s")
    _apply(cluster, installed)
    for workload in ("deployment/controller", "daemonset/speaker"):
        cluster.kubectl("rollout", "status", workload, f"--timeout={_SECONDS}s", f"--namespace={_NAMESPACE}")
    _apply(cluster, pool_objects(cluster.plan.addresses))


def _apply(cluster: Cluster, items: Iterable[dict[str, Any]]) -> None:
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(cluster_objects.list_of(iter(items))))


def remove_metallb(cluster: Cluster) -> None:
    """Delete MetalLB; its CustomResourceDefinitions remain."""
    cluster.kubectl("delete", "namespace", _NAMESPACE)
