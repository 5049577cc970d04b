"""Reads the corpus: each sync of each proxier in kube-proxy's unit tests is a case."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from knft.comparison.kube_proxy_inputs import KubeProxyOptions, ObjectSnapshots, sync_inputs
from knft.config import Config
from knft.families import Family
from knft.model.objects import ObjectChange
from knft.source.paths import read_paths
from knft_compat import iptables, ipvs, nftables
from knft_compat.sync_input import SyncInput

CORPUS = Path(__file__).with_name("corpus")
_ALL = ("0.0.0.0/0", "::/0")
Objects = dict[str, dict[str, Any]]


class Case(NamedTuple):
    """One sync: the objects then and at the sync before it (None for the first), and what kube-proxy did."""

    name: str
    configuration: dict[str, Any]
    objects: Objects
    previous: Objects | None
    result: dict[str, Any]
    flows: tuple[dict[str, Any], ...] = ()

    @property
    def cidrs(self) -> tuple[str, ...]:
        """The networks of pods; none if kube-proxy does not detect local traffic."""
        return tuple((self.configuration["localTraffic"] or [])[1:])

    @property
    def local_addresses(self) -> tuple[str, ...]:
        """The addresses of the node's interfaces."""
        return tuple(self.configuration["localAddresses"])

    @property
    def nodeport_addresses(self) -> tuple[str, ...]:
        """The value of --nodeport-addresses, none if all addresses accept NodePorts."""
        listed = self.configuration["nodePortAddresses"].strip("[]").split()
        return () if any(cidr in _ALL for cidr in listed) else tuple(listed)

    def config(self, **settings: Any) -> Config:
        """Return the configuration; ``settings`` are further fields."""
        node_ip = self.configuration["nodeIP"]
        return Config(
            node_name=self.configuration["nodeName"],
            node_ips=(node_ip,) if node_ip else (),
            cluster_cidrs=self.cidrs,
            masquerade_all=self.configuration["masqueradeAll"],
            **settings,
        )

    def knft_config(self) -> Config:
        """Return knft's configuration, for a case of mode nftables."""
        service_cidrs = (self.configuration["serviceCIDRs"],)
        return self.config(service_cidrs=service_cidrs, nodeport_addresses=self.nodeport_addresses or ("all",))

    def kube_proxy_options(self, settings: iptables.Settings | ipvs.Settings | nftables.Settings) -> KubeProxyOptions:
        """Return the options of ``knft render --backend``, and of ``knft diff --against``."""
        return KubeProxyOptions(
            config=self.config(),
            settings=settings,
            nodeport_addresses=self.nodeport_addresses,
            local_addresses=self.local_addresses,
            random_fully=self.configuration.get("randomFully", True),
        )

    def sync_input(
        self, settings: iptables.Settings | ipvs.Settings, previous: tuple[ObjectChange, ...] | None
    ) -> SyncInput:
        """Return the input of a sync, as ``knft render --backend`` makes it."""
        inputs = dict(sync_inputs(ObjectSnapshots(self.changes(), previous), self.kube_proxy_options(settings)))
        return inputs[Family(self.configuration["family"])]

    def changes(self) -> tuple[ObjectChange, ...]:
        """Return the objects as ``-f`` reads them."""
        return _read(self.objects, self.configuration)

    def previous_changes(self) -> tuple[ObjectChange, ...] | None:
        """Return the objects of the sync before, None for the first sync."""
        return None if self.previous is None else _read(self.previous, self.configuration)


def _read(found: Objects, configuration: dict[str, Any]) -> tuple[ObjectChange, ...]:
    items = [*found.values(), *_node(configuration)]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    return read_paths(("-",), listed.encode()).changes


def _node(configuration: dict[str, Any]) -> Iterator[dict[str, Any]]:
    labels = configuration["topologyLabels"]
    if labels:
        metadata = {"name": configuration["nodeName"], "labels": labels}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


@cache
def cases(mode: str) -> tuple[Case, ...]:
    """Return the cases of a mode. The name of a case is that of the test, and the number of the sync."""
    documents = [json.loads(path.read_text()) for path in sorted((CORPUS / mode).glob("*.json"))]
    found = [case for document in documents for proxier in document["proxiers"] for case in _cases(proxier)]
    names = [case.name for case in found]
    assert len(set(names)) == len(names), "two cases have one name"
    return tuple(found)


def _cases(proxier: dict[str, Any]) -> Iterator[Case]:
    objects: Objects = {}
    previous: Objects | None = None
    for number, sync in enumerate(proxier["syncs"]):
        objects = dict(objects)
        for item in sync.get("objects", ()):
            objects[f"{item['kind']} {item['metadata']['namespace']}/{item['metadata']['name']}"] = item
        for name in sync.get("deleted", ()):
            objects.pop(name, None)
        configuration = {**proxier["configuration"], **sync.get("configuration", {})}
        name = f"{proxier['name']} #{number}"
        yield Case(name, configuration, objects, previous, sync["result"], tuple(sync.get("flows", ())))
        previous = objects
