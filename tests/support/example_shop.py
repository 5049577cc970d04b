"""The manifests of ``examples/``, and how the demo scales them."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.support.lab.topology import Lab

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FRONTEND_PORT = 8080
DNS_PORT = 5353
FRONTEND_PODS = ("local-1", *(f"remote-{number}" for number in range(1, 8)))
DNS_PODS = ("local-2", "remote-2")


class Shop:
    """A copy of the manifests, whose frontend can be scaled."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        """Copy ``examples`` into ``folder``."""
        shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
        self._file = folder / "shop.yaml"
        self._lab = lab
        self._documents: list[dict[str, Any]] = list(yaml.safe_load_all(self._file.read_text()))

    def scale(self, count: int) -> tuple[str, ...]:
        """Give the frontend the first ``count`` pods as endpoints, and return their names. The file is replaced."""
        pods = FRONTEND_PODS[:count]
        for document in self._documents:
            if document["kind"] == "EndpointSlice":
                document["endpoints"] = [self._endpoint(pod, document["addressType"]) for pod in pods]
        new = self._file.with_suffix(".new")
        new.write_text(yaml.safe_dump_all(self._documents))
        new.rename(self._file)
        return pods

    def _endpoint(self, pod: str, family: str) -> dict[str, Any]:
        host = self._lab.host(pod)
        return {"addresses": [host.ipv4 if family == "IPv4" else host.ipv6], "nodeName": host.node}
