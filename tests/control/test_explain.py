"""``knft explain`` asks a real ``knft run``, compares with the kernel's rules, and explains these if no knft runs."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.control.daemon import REFUSED_ADDRESS, ControlledKnft
from tests.control.test_access import HOLD_LOCK, NO_DAEMON, python
from tests.support.kernel_harness import service, slices
from tests.support.knft_command import KNFT, knft

pytestmark = pytest.mark.kernel

EQUAL = ["the kernel's rules treat these packets in the same way"]
IN_KERNEL = "knft's tables in this machine's kernel"


def explain(daemon: ControlledKnft, *arguments: str, status: int = 0) -> dict[str, Any]:
    done = daemon.namespace.run([*KNFT, "explain", *arguments, "-o", "json"], check=False)
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def texts(statements: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in statements]


@pytest.mark.parametrize("what", ["web", "10.96.0.1", "10.96.0.1:80", "10.244.2.12", "10.244.2.12:8080"])
def test_running_knft_explains_with_reasons_and_the_kernel_agrees(daemon: ControlledKnft, what: str) -> None:
    found = explain(daemon, what)
    assert found["source"] == f"the running knft (pid {daemon.process.pid})"
    assert (found["node"], texts(found["kernel"]), found["sync"]) == ("node-1", EQUAL, [])
    endpoints = [each for port in found["ports"] for each in port["endpoints"]]
    assert "10.244.2.12:8080" in {each["endpoint"] for each in endpoints}
    assert {use["reason"]["text"] for each in endpoints for use in each["uses"]} == {"used"}
    text = knft(daemon.namespace, "explain", what).stdout
    assert f"\nsource  the running knft (pid {daemon.process.pid}), on node node-1\nkernel  {EQUAL[0]}\n" in text


def test_settings_of_the_running_knft_apply(daemon: ControlledKnft, tmp_path: Path) -> None:
    """Its node and flags decide, not those of the command."""
    other = ControlledKnft(
        tmp_path, (11,), "--cluster-cidr", "10.244.0.0/16", "--service-cidr", "10.96.0.0/16", "--service-counters"
    )
    try:
        other.wait_until_synced()
        found = explain(other, "web")
        clients = {each["client"] for each in found["ports"][0]["frontends"][0]["outcomes"]}
        assert (clients, texts(found["kernel"])) == ({"pod", "outside"}, EQUAL)
        unallocated = explain(other, "10.96.7.7:80", status=3)
        assert texts(unallocated["conclusion"]) == [
            "knft's rules have no frontend at 10.96.7.7; 10.96.0.0/16 is a Service CIDR, so packets to it are dropped"
        ]
        assert texts(unallocated["kernel"]) == EQUAL
    finally:
        other.close()
    clients = {each["client"] for each in explain(daemon, "web")["ports"][0]["frontends"][0]["outcomes"]}
    assert clients == {"any"}


def test_quarantined_service_port_is_named(daemon: ControlledKnft) -> None:
    refused = service("bad", 2)
    refused["spec"] |= {"clusterIP": REFUSED_ADDRESS, "clusterIPs": [REFUSED_ADDRESS], "ipFamilies": ["IPv4"]}
    daemon.write("bad", refused, slices("bad", (21,))[0])
    daemon.wait_until(lambda: daemon.ask("status")["families"]["IPv4"]["quarantined"]["count"] == 1)
    found = explain(daemon, "bad")
    assert texts(found["kernel"]) == [f"the kernel's rules treat packets to {REFUSED_ADDRESS}:80/tcp differently"]
    assert "Service port default/bad:http is quarantined, and knft retries it: refused for the test" in texts(
        found["sync"]
    )
    daemon.write("bad", service("bad", 2), slices("bad", (21,))[0])
    daemon.wait_until(lambda: daemon.ask("status")["families"]["IPv4"]["quarantined"]["count"] == 0)
    found = explain(daemon, "bad")
    assert (texts(found["kernel"]), found["sync"]) == (EQUAL, [])


def test_affinity_entries_and_connections_are_shown(daemon: ControlledKnft) -> None:
    daemon.write("sticky", service("sticky", 30, sessionAffinity="ClientIP"), *slices("sticky", (31, 32)))
    daemon.wait_for_change("sticky")
    ids = daemon.namespace.run(["nft", "list", "map", "ip", "knft", "endpoint-ids-tcp"]).stdout
    number = re.findall(r"10\.96\.0\.30 \. 80 \. 0 : ([0-9a-f:]+)", ids)[0]
    element = f"192.0.2.7 . {number} timeout 10800s expires 600s"
    daemon.namespace.run(["nft", f"add element ip knft affinity-clients {{ {element} }}"])
    for source in ((), ("--source", "kernel")):
        found = explain(daemon, "sticky", "--client", "192.0.2.7", "--connections", *source)
        (pinned,) = found["pinned"]
        assert found["conclusion"][0]["kind"] == "pinned"
        assert pinned["frontends"] == ["10.96.0.30:80/tcp"]
        assert 500 < pinned["seconds"] <= 600
        port = found["ports"][0]
        clients = {each["endpoint"]: (each["clients"], each["connections"]) for each in port["endpoints"]}
        assert clients == {
            **dict.fromkeys(("10.244.2.31:8080", "10.244.2.32:8080"), (0, 0)),
            pinned["endpoint"]: (1, 0),
        }
        assert (port["clients"], port["connections"]) == (1, 0)
    without = explain(daemon, "sticky", "--no-live")["ports"][0]
    assert (without["clients"], without["connections"]) == (None, None)


def test_kernel_is_the_source_if_that_is_asked_for(daemon: ControlledKnft) -> None:
    found = explain(daemon, "web", "--source", "kernel")
    assert (found["source"], found["node"], found["kernel"]) == (IN_KERNEL, "", [])
    assert explain(daemon, "web", "--no-live")["kernel"] == []
    assert texts(explain(daemon, "web", "--live", "--source", "daemon")["kernel"]) == EQUAL


def test_kernel_is_the_source_if_no_knft_runs(tmp_path: Path) -> None:
    daemon = ControlledKnft(tmp_path)
    try:
        daemon.wait_until_synced()
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.wait()
        found = explain(daemon, "web")
        assert (found["source"], found["warnings"]) == (IN_KERNEL, [])
        for flag in ("--source=daemon", "--live"):
            done = daemon.namespace.run([*KNFT, "explain", "web", flag], check=False)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith(NO_DAEMON)
        with python(daemon.namespace, HOLD_LOCK):
            (warning,) = explain(daemon, "web")["warnings"]
        assert warning.startswith("the running knft was not asked: a knft process runs in this network namespace: pid ")
        assert "; it refuses connections: retry if it is starting; " in warning
    finally:
        daemon.close()
