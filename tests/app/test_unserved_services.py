"""``knft run --once`` names Services that no EndpointSlice serves; it does not wait a minute for slices."""

from pathlib import Path

import pytest

from tests.support.kernel_harness import service, slices
from tests.support.knft_command import sync_once, write_manifests
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


def test_sync_once_names_unserved_services(tmp_path: Path) -> None:
    """The slices of both families have the same wrong port name; they count once."""
    wrong = slices("web", [1])
    for each in wrong:
        each["ports"] = [{"name": "htpp", "port": 8080}]
    selector = {"app": "web"}
    write_manifests(tmp_path, [service("api", 1, selector=selector), service("web", 2, selector=selector), *wrong])
    namespace = Namespace.create("once")
    log = sync_once(namespace, tmp_path)
    namespace.close()
    api, web = (line for line in log.splitlines() if "are rejected" in line)
    assert "Service default/api has a selector, but no EndpointSlice has label kubernetes.io/service-name=api" in api
    assert "Service default/web has port 'http' (TCP), but its EndpointSlices have only 'htpp' (TCP)" in web
