"""``knft explain`` asks a ``knft run`` that watches an API server, also about Services that it does not watch."""

import json
from typing import Any

import pytest

from tests.support.api_server_knft import NODE, ApiServerKnft
from tests.support.fake_api.cluster import endpoint_slice, service
from tests.support.fake_api.server import FakeApiServer
from tests.support.knft_command import KNFT

pytestmark = pytest.mark.kernel


def _explain(knft: ApiServerKnft, what: str, status: int = 0) -> dict[str, Any]:
    done = knft.namespace.run([*KNFT, "explain", what, "-o", "json"], check=False)
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_objects_of_the_api_server_are_explained(knft: ApiServerKnft, server: FakeApiServer) -> None:
    knft.wait_until_programmed()
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.6"))
    knft.wait_until(lambda: knft.table_contains("10.244.1.6"))
    found = _explain(knft, "web")
    assert (found["source"], found["node"]) == (f"the running knft (pid {knft.process.pid})", NODE)
    assert [each["kind"] for each in found["kernel"]] == ["kernel_equal"]
    (port,) = found["ports"]
    assert [(each["endpoint"], each["pod"], each["state"]) for each in port["endpoints"]] == [
        ("10.244.1.6:8080", "", "ready")
    ]
    server.cluster.put("services", {**service("headless", 9), "spec": {"clusterIP": "None"}})
    unknown = _explain(knft, "headless", status=3)
    assert [each["kind"] for each in unknown["conclusion"]] == ["unknown_service"]
