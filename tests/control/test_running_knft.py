"""``knft status`` and ``knft history`` ask a real ``knft run`` with manifests, whose rules real packets meet."""

import json
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_connection, create_server, socket
from typing import Any, NamedTuple

import pytest

from knft import __version__
from knft.track.size_limits import MAX_SOURCE_RANGES
from tests.control.daemon import REFUSED_ADDRESS, ControlledKnft
from tests.support.kernel_harness import service, slices
from tests.support.knft_command import KNFT, knft
from tests.support.lab.namespace import Namespace
from tests.support.nft_library_version import LIBRARY_VERSION
from tests.support.terminal import on_terminal, without_colours
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.kernel

LOST = "10.244.2.11"
ENDPOINTS = (LOST, "10.244.2.12")


class Connection(NamedTuple):
    """When a client began to connect, in seconds since 1970, and which endpoint answered."""

    began: float
    endpoint: str


@contextmanager
def connecting_client(namespace: Namespace) -> Iterator[list[Connection]]:
    """Serve the endpoints, and connect to the Service again and again; yield the connections so far."""
    for command in (
        "link set lo up",
        *(f"address add {each}/32 dev lo" for each in ENDPOINTS),
        "route add default dev lo",
    ):
        namespace.run(["ip", *command.split()])
    found: list[Connection] = []
    stop = threading.Event()
    with namespace.entered():
        servers = [create_server((address, 8080), backlog=128) for address in ENDPOINTS]
    threads = [threading.Thread(target=_serve, args=each) for each in zip(servers, ENDPOINTS, strict=True)]
    threads.append(threading.Thread(target=_connect, args=[namespace, found, stop]))
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        threads[-1].join(TIMEOUT)
        for server in servers:
            server.shutdown(2)
            server.close()


def _serve(server: socket, address: str) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(address.encode())


def _connect(namespace: Namespace, found: list[Connection], stop: threading.Event) -> None:
    with namespace.entered():
        while not stop.wait(0.002):
            began = time.time()
            with suppress(OSError), create_connection(("10.96.0.1", 80), TIMEOUT) as connection:
                found.append(Connection(began, connection.recv(100).decode()))


def test_history_tells_how_long_new_connections_reached_a_removed_endpoint(tmp_path: Path) -> None:
    """No connection that began when the removal was in force reached it; until the event arrived, some did."""
    daemon = ControlledKnft(tmp_path, endpoints=(11, 12))
    try:
        daemon.wait_until_synced()
        with connecting_client(daemon.namespace) as connections:
            wait_until(lambda: {each.endpoint for each in connections} == set(ENDPOINTS), "both endpoints answer")
            daemon.write("web", service("web", 1), *slices("web", (12,)))
            change = daemon.wait_for_change("web", "--endpoint", LOST)
            after = len(connections)
            wait_until(lambda: len(connections) > after + 30, "the client continues")
        received, in_force = change["cause"]["received"], change["in_force"]
        assert received < in_force
        assert change["seconds"] == pytest.approx(in_force - received, abs=1e-3)
        assert (change["lost"], change["gained"]) == ([f"{LOST}:8080"], [])
        assert (change["service"], change["cause"]["name"]) == ("default/web", "default/web-ipv4")
        assert any(each.endpoint == LOST for each in connections if each.began < received)
        assert {each.endpoint for each in connections if each.began > in_force} == {ENDPOINTS[1]}
        text = knft(daemon.namespace, "history", "default/web", "--endpoint", LOST).stdout
        node, conclusion, *_ = text.splitlines()
        assert node == "node node-1"
        assert conclusion.startswith(f"{LOST} left default/web:http (TCP, IPv4) at 20")
        assert "; new connections still reached it for " in conclusion
        by_number = knft(daemon.namespace, "history", "web:80", "--endpoint", LOST, "--since", "1h").stdout
        assert by_number.splitlines()[1].partition("; new connections")[0] in conclusion
    finally:
        daemon.close()


def test_status_of_a_ready_process(daemon: ControlledKnft) -> None:
    before = numbers(daemon.ask("status"))
    daemon.write("more", service("more", 9), *slices("more", (31, 32)))
    daemon.wait_until(lambda: numbers(daemon.ask("status"))["endpoints"] == before["endpoints"] + 2)
    daemon.wait_until(lambda: daemon.ask("status")["families"]["IPv6"]["state"] == "in force")
    status = daemon.ask("status")
    assert numbers(status) == {name: number + (2 if name == "endpoints" else 1) for name, number in before.items()}
    assert (status["problem"], status["node"], status["mode"]) == ("", "node-1", "nftables")
    assert (status["pid"], status["source"]["kind"]) == (daemon.process.pid, "manifests")
    assert 0 <= status["conntrack"]["entries"] < status["conntrack"]["maximum"]
    versions = (__version__, platform.python_version(), LIBRARY_VERSION, platform.release())
    assert tuple(status[each] for each in ("knft", "python", "libnftables", "kernel")) == versions
    family = status["families"]["IPv4"]
    assert 0 < family["last_sync_seconds"] < status["uptime"]
    assert 0 <= family["last_sync_age"] < status["uptime"]
    assert not family["last_sync_is_full"]
    assert (family["services_pending"], family["endpoint_changes_pending"]) == (0, 0)
    assert (family["state"], family["pending_seconds"], family["sync_error"]) == ("in force", None, "")
    assert family["elements"] == daemon_elements(daemon)
    text = knft(daemon.namespace, "status").stdout
    assert text.startswith("knft is ready and all rules are in force\n")
    assert "\nIPv4          in force; last sync " in text


@pytest.mark.parametrize("command", ["status", "history"])
def test_text_fits_the_terminal(daemon: ControlledKnft, command: str) -> None:
    daemon.wait_until(lambda: bool(daemon.ask("history")["entries"]))
    with daemon.namespace.entered():
        narrow, wide = (on_terminal([*KNFT, command], columns) for columns in (80, 200))
    assert narrow.count("\n") > wide.count("\n")
    assert max(map(len, without_colours(narrow).splitlines())) <= 80
    assert max(map(len, without_colours(wide).splitlines())) <= 200
    assert ("\x1b" in narrow) is (command == "status")


def test_lint_compares_a_change_with_the_objects_of_the_running_knft(daemon: ControlledKnft, tmp_path: Path) -> None:
    """All endpoints are on node-2."""
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(service("web", 1, internalTrafficPolicy="Local")))
    done = knft(daemon.namespace, "lint", "-f", str(changed), "--against-daemon", "-o", "json", check=False)
    change = json.loads(done.stdout)["change"]
    assert change["nodes"] == ["node-1"]
    assert {(each["service"], each["after"]) for each in change["traffic"]} == {("default/web:http", "is dropped")}
    assert {each["id"] for each in change["new_findings"]} == {"internal-policy-local"}


def numbers(status: dict[str, Any]) -> dict[str, int]:
    """Return the numbers of a status that depend on the manifests, which other tests change, too."""
    family = status["families"]["IPv4"]
    files, services = status["source"]["files"]["read"], status["services"]
    return {"files": files, "services": services, "ports": family["service_ports"], "endpoints": family["endpoints"]}


def daemon_elements(daemon: ControlledKnft) -> int:
    """Return the number of elements that the kernel has in knft's table of IPv4, without those of dynamic sets."""
    listing = daemon.namespace.run(["nft", "-j", "list", "table", "ip", "knft"]).stdout
    objects = json.loads(listing)["nftables"]
    return sum(len(found[kind].get("elem", ())) for found in objects for kind in ("set", "map") if kind in found)


def test_foreign_change_is_in_status_and_history(daemon: ControlledKnft) -> None:
    def table_changes(*arguments: str) -> list[dict[str, Any]]:
        return [entry for entry in daemon.ask("history", *arguments)["entries"] if entry["type"] == "table"]

    earlier, earlier_count = len(table_changes()), daemon.ask("status")["families"]["IPv4"]["foreign_changes"]
    daemon.namespace.run(["nft", "flush", "chain", "ip", "knft", "services"])
    daemon.wait_until(lambda: any(entry["repaired"] is not None for entry in table_changes()[earlier:]))
    (change,) = table_changes("web")[earlier:]
    assert change["family"] == "IPv4"
    assert change["description"].startswith("nft (pid ")
    assert change["description"].endswith(") changed the table: services")
    assert change["at"] <= change["repaired"]
    family = daemon.ask("status")["families"]["IPv4"]
    assert family["foreign_changes"] == earlier_count + 1
    assert family["last_foreign_change"] == change["description"]
    assert daemon.ask("history", "--endpoint", LOST)["entries"] == []
    assert "knft repaired the table at " in knft(daemon.namespace, "history").stdout


def test_history_of_a_service_that_does_not_exist_says_so(daemon: ControlledKnft) -> None:
    done = knft(daemon.namespace, "history", "wbe", check=False)
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        "node node-1",
        "knft has no changes of Service default/wbe",
        (
            "the running knft has no Service default/wbe: it does not exist, is headless, or has label "
            "service.kubernetes.io/service-proxy-name"
        ),
        "did you mean default/web?",
    ]
    done = knft(daemon.namespace, "history", "wbe", "-o", "json", check=False)
    assert (done.returncode, json.loads(done.stdout)["entries"]) == (3, [])
    assert "the running knft has no Service" not in knft(daemon.namespace, "history", "web").stdout
    done = knft(daemon.namespace, "history", "web:nope", check=False)
    assert done.returncode == 3
    assert "Service default/web has no port 'nope', only 'http' (80/tcp)" in done.stdout


def test_quarantined_service_is_in_status_and_in_history_when_released(daemon: ControlledKnft) -> None:
    refused = service("bad", 2)
    refused["spec"] |= {"clusterIP": REFUSED_ADDRESS, "clusterIPs": [REFUSED_ADDRESS], "ipFamilies": ["IPv4"]}
    ipv4_slice = slices("bad", (21,))[0]
    daemon.write("bad", refused, ipv4_slice)
    daemon.wait_until(lambda: daemon.ask("status")["families"]["IPv4"]["quarantined"]["count"] == 1)
    quarantined = daemon.ask("status")["families"]["IPv4"]["quarantined"]
    assert quarantined["reasons"] == {"default/bad:http": "refused for the test"}
    assert daemon.endpoint_changes("bad") == []
    text = knft(daemon.namespace, "status").stdout
    assert text.startswith("knft is ready, with problems: IPv4: 1 quarantined Service port\n")
    assert "default/bad:http: refused for the test\n" in text
    daemon.write("bad", service("bad", 2), ipv4_slice)
    change = daemon.wait_for_change("bad", "--since", "5m")
    assert change["gained"] == ["10.244.2.21:8080"]
    assert daemon.endpoint_changes("bad", "--since", "2999-01-01") == []


def test_contested_and_too_large_services_are_named(daemon: ControlledKnft) -> None:
    first, second = (
        service(name, number, externalIPs=["203.0.113.5"]) for name, number in (("first", 3), ("second", 4))
    )
    ranges = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(MAX_SOURCE_RANGES + 1)]
    large = service("large", 5, type="LoadBalancer", loadBalancerSourceRanges=ranges)
    large["status"] = {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}
    daemon.write("contested", first, second, large)
    daemon.wait_until(lambda: daemon.ask("status")["families"]["IPv4"]["contested"]["count"] == 1)
    family = daemon.ask("status")["families"]["IPv4"]
    claim = "Service port default/second:http does not get frontend 203.0.113.5 80/TCP"
    assert family["contested"]["texts"] == [f"{claim}, which Service port default/first:http owns"]
    assert list(family["left_out"]["reasons"]) == ["default/large"]
    text = knft(daemon.namespace, "status").stdout
    assert "IPv4: 1 Service left out" in text.splitlines()[0]
    daemon.write("contested", first)
    daemon.wait_until(lambda: daemon.ask("status")["families"]["IPv4"]["left_out"]["count"] == 0)
