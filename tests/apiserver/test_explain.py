"""``knft explain`` asks a ``knft run`` that watches an API server, also about Services that it does not watch."""

import json
import subprocess
from typing import Any

import pytest

from knft.apiserver.endpoint_pods import decode_pods
from tests.support.api_server_knft import NODE, ApiServerKnft
from tests.support.fake_api.cluster import endpoint_slice, service
from tests.support.fake_api.responses import never_respond, respond_status
from tests.support.fake_api.server import FakeApiServer
from tests.support.knft_command import KNFT
from tests.support.logged_process import TIMEOUT

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
    assert found["warnings"] == []
    server.cluster.put("services", {**service("headless", 9), "spec": {"clusterIP": "None"}})
    unknown = _explain(knft, "headless", status=3)
    assert [each["kind"] for each in unknown["conclusion"]] == ["unknown_service"]


def _described(name: str, of: str, *addresses: str, namespace: str = "default") -> dict[str, Any]:
    """Return an EndpointSlice whose endpoints have pods and zones."""
    found = endpoint_slice(name, of, *addresses, namespace=namespace)
    for number, endpoint in enumerate(found["endpoints"]):
        endpoint |= {"targetRef": {"kind": "Pod", "name": f"{name}-pod-{number}"}, "zone": f"zone-{number}"}
        endpoint["nodeName"] = f"node-{number}"
    return found


def test_pods_and_zones_are_requested_from_the_api_server(knft: ApiServerKnft, server: FakeApiServer) -> None:
    """Only the EndpointSlices of the explained Service are; pods of a slice that was not asked for do not appear."""
    server.cluster.put("endpointslices", _described("web-1", "web", "10.244.0.5", "10.244.1.5"))
    server.cluster.put("endpointslices", _described("other", "other", "10.244.1.5"))
    server.cluster.put("endpointslices", _described("elsewhere", "web", "10.244.1.5", namespace="shop"))
    knft.wait_until_programmed()
    knft.wait_until(lambda: knft.table_contains("10.244.0.5"))
    (port,) = _explain(knft, "web")["ports"]
    assert [(each["endpoint"], each["pod"], each["node"], each["zone"]) for each in port["endpoints"]] == [
        ("10.244.0.5:8080", "web-1-pod-0", "node-0", "zone-0"),
        ("10.244.1.5:8080", "web-1-pod-1", "node-1", "zone-1"),
    ]
    last = server.requests_for("endpointslices")[-1]
    assert (last.namespace, last.query["labelSelector"]) == ("default", "kubernetes.io/service-name=web")


def test_explanation_without_an_answer_of_the_api_server_says_what_is_missing(
    knft: ApiServerKnft, server: FakeApiServer
) -> None:
    knft.wait_until_programmed()
    server.respond_next("list endpointslices", respond_status(403, "not for you", "Forbidden"))
    found = _explain(knft, "web")
    (port,) = found["ports"]
    assert [(each["endpoint"], each["pod"], each["zone"]) for each in port["endpoints"]] == [
        ("10.244.1.5:8080", "", "")
    ]
    assert found["warnings"] == [
        "pods, and zones of other nodes, are missing for default/web: the server answered 403: not for you"
    ]
    assert [each["kind"] for each in found["kernel"]] == ["kernel_equal"]


def test_all_pages_are_requested(knft: ApiServerKnft, server: FakeApiServer) -> None:
    addresses = [f"10.244.0.{number}" for number in range(3)]
    for number, address in enumerate(addresses):
        server.cluster.put("endpointslices", _described(f"web-{number}", "web", address))
    knft.wait_until_programmed()
    knft.wait_until(lambda: all(knft.table_contains(address) for address in addresses))
    server.max_page_size = 1
    (port,) = _explain(knft, "web")["ports"]
    assert [(each["endpoint"], each["pod"]) for each in port["endpoints"]] == [
        (f"{address}:8080", f"web-{number}-pod-0") for number, address in enumerate(addresses)
    ]
    requests = [request for request in server.requests_for("endpointslices") if request.namespace]
    assert [request.query["limit"] for request in requests] == ["20"] * 3
    assert ["continue" in request.query for request in requests] == [False, True, True]


def test_no_other_command_waits_for_the_api_server(knft: ApiServerKnft, server: FakeApiServer) -> None:
    knft.wait_until_programmed()
    server.respond_next("list endpointslices", never_respond)
    explaining = knft.namespace.popen([*KNFT, "explain", "web", "-o", "json"], stdout=subprocess.PIPE)
    server.wait_for_request("list endpointslices")
    assert json.loads(knft.namespace.run([*KNFT, "status", "-o", "json"]).stdout)["problem"] == ""
    server.released.set()
    found = json.loads(explaining.communicate(timeout=TIMEOUT)[0])
    assert found["ports"]
    (warning,) = found["warnings"]
    assert warning.startswith("pods, and zones of other nodes, are missing for default/web: ")


def test_conditions_and_owners_of_endpoints_are_decoded() -> None:
    """An object that is no EndpointSlice hides no other; a wrong value hides the pod only."""
    conditions: tuple[tuple[dict[str, bool], str], ...] = (
        ({}, "ready"),
        ({"ready": False}, "not ready"),
        ({"ready": False, "terminating": True}, "serving"),
        ({"ready": False, "serving": False, "terminating": True}, "terminating"),
    )
    first = _described("web-1", "web", *(f"10.244.0.{number}" for number in range(len(conditions))))
    for endpoint, (values, _) in zip(first["endpoints"], conditions, strict=True):
        endpoint["conditions"] = values
    first["endpoints"][0] |= {"targetRef": {"kind": "Node", "name": "n"}, "zone": None}
    first["endpoints"][1] |= {"targetRef": "wrong", "conditions": None}
    items = [{"metadata": {"name": "no-slice"}}, first, {**_described("web-2", "web"), "endpoints": None}]
    page = decode_pods(json.dumps({"metadata": {"continue": "more"}, "items": items}).encode())
    assert [(pod.pod, pod.zone, pod.state) for pod in page.pods] == [
        ("", "", "ready"),
        ("", "zone-1", "ready"),
        ("web-1-pod-2", "zone-2", "serving"),
        ("web-1-pod-3", "zone-3", "terminating"),
    ]
    assert page.token == "more"  # noqa: S105 - of a page
