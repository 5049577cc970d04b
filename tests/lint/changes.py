"""Changes of manifests, and a running knft whose objects are the earlier ones."""

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import structs

import knft.lint.report as form
from knft.config import Config
from knft.source.decode import decode
from tests.support.lint_objects import (
    TWO_NODES,
    Object,
    endpoint,
    endpoint_slice,
    node_port,
    service,
    service_cidr,
)
from tests.support.lint_reports import report_of, written
from tests.support.memory_daemon import MemoryDaemon

POD_CIDR = ("--cluster-cidr", "10.244.0.0/16")


def write_change(folder: Path) -> tuple[str, str]:
    """Write manifests before and after a change: node-2 loses its endpoint, and a port of EndpointSlices its name."""
    web, api = node_port(externalTrafficPolicy="Local"), service("api", clusterIP="10.96.0.11")
    before = (web, endpoint_slice(), api, endpoint_slice(service="api"), *TWO_NODES)
    renamed = endpoint_slice(service="api", ports=[{"name": "web", "port": 8080, "protocol": "TCP"}])
    after = (web, endpoint_slice(endpoint(1)), api, renamed, *TWO_NODES)
    return written(folder / "before", *before), written(folder / "after", *after)


RUNNING_OBJECTS = (
    node_port(trafficDistribution="PreferClose"),
    endpoint_slice(),
    service("api", clusterIP="10.96.0.11"),
    endpoint_slice(service="api"),
    service("dns", clusterIP="10.96.0.12"),
    TWO_NODES[1],
    service_cidr("10.96.0.0/16"),
)
"""Those of the running knft of ``report_of_running``; ``CHANGED`` is a change of one of them."""
CHANGED = node_port(externalTrafficPolicy="Local", trafficDistribution="PreferClose")


def running(*objects: Object, **settings: Any) -> MemoryDaemon:
    """Return a running knft on node-2, whose interfaces have one address."""
    daemon = MemoryDaemon(Config("node-2", cluster_cidrs=("10.244.0.0/16",), **settings), ("192.0.2.12",))
    items = {"apiVersion": "v1", "kind": "List", "items": objects}
    daemon.add(*decode(json.dumps(items).encode()).objects)
    return daemon


def report_of_running(
    folder: Path, *changed: Object, daemon: MemoryDaemon | None = None, flags: tuple[str, ...] = ()
) -> form.LintReport:
    """Return the report about a change of objects of a running knft, whose PID is 4242."""
    daemon = daemon or running(*RUNNING_OBJECTS)
    part = written(folder / "part", *(changed or (CHANGED,)))
    with patch("knft.control.object_reader.ObjectReader", lambda: daemon.reader):
        found = report_of("-f", part, "--against-daemon", *flags)
    own = f"the running knft (pid {os.getpid()})"
    return structs.replace(found, notes=tuple(each.replace(own, "the running knft (pid 4242)") for each in found.notes))
