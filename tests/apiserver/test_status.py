"""``knft status`` and ``knft history`` of a knft that follows an API server."""

import json
import time
from typing import Any

import pytest

from tests.support.api_server_knft import NODE, ApiServerKnft
from tests.support.fake_api.cluster import endpoint_slice, node
from tests.support.fake_api.server import FakeApiServer
from tests.support.knft_command import knft as run_knft

pytestmark = pytest.mark.kernel


def ask(knft: ApiServerKnft, *arguments: str) -> Any:
    done = run_knft(knft.namespace, *arguments, "-o", "json", check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def changes(knft: ApiServerKnft) -> list[dict[str, Any]]:
    return [entry for entry in ask(knft, "history", "web")["entries"] if entry["type"] == "endpoints"]


def test_status_from_the_start_until_the_api_server_is_away(knft: ApiServerKnft, server: FakeApiServer) -> None:
    """Without its Node knft waits; then it is ready, and stays so without the API server."""
    server.cluster.remove("nodes", NODE, namespace="")
    knft.wait_until(lambda: ask(knft, "status") is not None)
    status = ask(knft, "status")
    assert status["problem"] == "waiting for the Services and endpoints of the cluster"
    assert (status["source"]["kind"], status["source"]["name"]) == ("API server", server.url)
    assert status["families"]["IPv4"]["last_sync"] is None
    text = run_knft(knft.namespace, "status").stdout
    assert text.startswith("knft is not ready: waiting for the Services and endpoints of the cluster\n")
    assert "; no sync has succeeded yet\n" in text

    server.cluster.put("nodes", node(NODE, "192.0.2.11"))
    knft.wait_until_programmed()
    knft.wait_until(lambda: not ask(knft, "status")["problem"])
    status = ask(knft, "status")
    assert status["families"]["IPv4"]["node_address"] == "192.0.2.11"
    assert (status["services"], status["source"]["problems"]) == (1, [])
    assert status["source"]["unwatched_seconds"] == {}
    assert status["source"]["last_message_age"] >= 0
    text = run_knft(knft.namespace, "status").stdout
    assert f"\nAPI server    {server.url}, connected; last heard " in text

    server.close()
    knft.wait_until(lambda: bool(ask(knft, "status")["source"]["problems"]))
    status = ask(knft, "status")
    assert status["problem"] == ""
    assert "cannot watch" in status["source"]["problems"][0]
    assert max(status["source"]["unwatched_seconds"].values()) <= status["source"]["last_message_age"]
    text = run_knft(knft.namespace, "status").stdout
    assert text.startswith("knft is ready, with problems: cannot watch ")


def outages(knft: ApiServerKnft) -> list[dict[str, Any]]:
    return [entry for entry in ask(knft, "history")["entries"] if entry["type"] == "API server"]


def test_history_tells_when_the_api_server_was_away(knft: ApiServerKnft, server: FakeApiServer) -> None:
    knft.wait_until_programmed()
    assert outages(knft) == []
    began = time.time()
    server.close()
    knft.wait_until(lambda: bool(outages(knft)))
    (outage,) = outages(knft)
    assert (outage["resource"], outage["ended"]) == ("", None)
    assert began < outage["began"] < time.time()
    text = run_knft(knft.namespace, "history").stdout
    assert f" UTC  cannot watch the API server: {outage['problem']}\n    not watched again yet; " in text
    # So that each watch begins with a bookmark: knft believes a watch only then if the last one failed within seconds.
    server.cluster.put("nodes", node("node-2"))
    with knft.namespace.entered():
        restarted = FakeApiServer(server.cluster, port=server.server_port)
    with restarted:
        knft.wait_until(lambda: outages(knft)[0]["ended"] is not None)
        (ended,) = outages(knft)
        assert ended == outage | {"ended": ended["ended"]}
        assert outage["began"] < ended["ended"] < time.time()
        assert "\n    watched again since " in run_knft(knft.namespace, "history").stdout
        server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.77"))
        knft.wait_until(lambda: bool(changes(knft)))
        entries = json.loads(run_knft(knft.namespace, "history", "-o", "json").stdout)["entries"]
        assert [each["type"] for each in entries[-2:]] == ["API server", "endpoints"]


def test_history_names_slice_and_resource_version(knft: ApiServerKnft, server: FakeApiServer) -> None:
    """An endpoint that terminates leaves by the event that says so, not by the later one that removes it."""
    knft.wait_until_programmed()
    both = endpoint_slice("web-1", "web", "10.244.1.5", "10.244.1.20")
    added = server.cluster.put("endpointslices", both)
    knft.wait_until(lambda: len(changes(knft)) == 1)
    terminating = endpoint_slice("web-1", "web", "10.244.1.5", "10.244.1.20")
    terminating["endpoints"][1]["conditions"] = {"ready": False, "serving": True, "terminating": True}
    terminating["metadata"]["annotations"] = {
        "endpoints.kubernetes.io/last-change-trigger-time": "2026-11-24T14:03:07Z"
    }
    left = server.cluster.put("endpointslices", terminating)
    knft.wait_until(lambda: len(changes(knft)) == 2)
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.5"))
    server.cluster.remove("services", "web")
    knft.wait_until(lambda: len(changes(knft)) == 3)
    first, second, third = changes(knft)
    assert (first["gained"], first["lost"]) == (["10.244.1.20:8080"], [])
    assert first["cause"]["resource_version"] == added["metadata"]["resourceVersion"]
    assert (second["gained"], second["lost"]) == ([], ["10.244.1.20:8080"])
    assert second["cause"] | {"received": 0} == {
        "kind": "EndpointSlice",
        "name": "default/web-1",
        "resource_version": left["metadata"]["resourceVersion"],
        "is_deleted": False,
        "triggered": "2026-11-24T14:03:07Z",
        "received": 0,
    }
    assert third["lost"] == ["10.244.1.5:8080"]
    assert (third["cause"]["kind"], third["cause"]["is_deleted"]) == ("Service", True)
    text = run_knft(knft.namespace, "history", "web").stdout
    assert f"EndpointSlice default/web-1 changed at resourceVersion {left['metadata']['resourceVersion']}, " in text
