"""``knft run`` as a DaemonSet runs it, against the small API server: what it follows, answers, counts, and ends by."""

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_client.cluster import endpoint_slice, node, service
from tests.cluster_client.server import ApiServer, refuse
from tests.lab.links import netlink
from tests.lab.namespace import Namespace
from tests.packets.node import KNFT

pytestmark = pytest.mark.kernel

HANG = 60.0
NODE = "node-1"
# nf_conntrack_max is the whole machine's.
LEAVE_ALONE = ("--conntrack-max-per-core=0", "--conntrack-tcp-timeout-close-wait=0s")


class Started:
    """One ``knft run`` in the namespace that its API server is in."""

    def __init__(self, namespace: Namespace, server: ApiServer, folder: Path, *flags: str) -> None:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(server.url)))
        self.namespace, self._log = namespace, folder / "log"
        command = [*KNFT, "run", f"--kubeconfig={kubeconfig}", f"--hostname-override={NODE}", *LEAVE_ALONE, *flags]
        with self._log.open("w") as log:
            self.process = namespace.popen(command, stderr=log)

    def said(self) -> str:
        return self._log.read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG
        while not condition():
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)

    def until_in_force(self) -> None:
        self.until(lambda: self.said().count("full sync") == 2)

    def holds(self, words: str) -> bool:
        return words in self.namespace.run(["nft", "list", "table", "ip", "knft"]).stdout

    def get(self, port: int, path: str) -> tuple[int, str]:
        with self.namespace.entered():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

    def ends(self) -> int:
        return self.process.wait(HANG)


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "knft"}}],
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "knft", "user": {"token": "a-token-of-the-tests"}}],
    }


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace.create("cluster")
    with netlink(made) as link:
        link.up("lo")
    yield made
    made.close()


@pytest.fixture
def server(namespace: Namespace) -> Iterator[ApiServer]:
    with namespace.entered():
        server = ApiServer()
    with server:
        server.cluster.put("nodes", node(NODE, "192.0.2.11"))
        server.cluster.put("services", service("web", 7))
        server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.5"))
        yield server


@pytest.fixture
def running(namespace: Namespace, server: ApiServer, tmp_path: Path) -> Iterator[Started]:
    started = Started(namespace, server, tmp_path, "--min-sync-period=0")
    yield started
    started.process.kill()
    started.process.wait()


def test_it_follows_answers_counts_and_tells(running: Started, server: ApiServer) -> None:
    running.until_in_force()
    assert running.holds("10.96.0.7")
    assert running.holds("10.244.1.5")
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.6"))
    running.until(lambda: running.holds("10.244.1.6"))
    assert not running.holds("10.244.1.5 .")

    status, body = running.get(10256, "/healthz")
    assert (status, json.loads(body)["nodeEligible"]) == (200, True)
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    server.cluster.put("nodes", node(NODE, "192.0.2.11", taints=[taint]))
    running.until(lambda: running.get(10256, "/healthz")[0] == 503)
    assert running.get(10256, "/livez")[0] == 200

    host = server.url.removeprefix("http://")
    counted = f'rest_client_requests_total{{code="200",host="{host}",method="GET"}} '
    running.until(lambda: counted in running.get(10249, "/metrics")[1])
    assert running.get(10249, "/proxyMode") == (200, "nftables")
    configuration = json.loads(running.get(10249, "/configz")[1])["kubeproxy.config.k8s.io"]
    assert configuration["hostnameOverride"] == NODE

    event = json.loads(server.wait_for("post").body)
    assert (event["reason"], event["regarding"]["kind"], event["regarding"]["name"]) == ("Starting", "Node", NODE)

    running.process.send_signal(signal.SIGTERM)
    assert running.ends() == 0
    assert running.holds("10.244.1.6")


def test_it_waits_for_its_node_and_ends_with_it(running: Started, server: ApiServer) -> None:
    """Rules stay, and whoever supervises it starts it again (J.3)."""
    server.cluster.put("services", service("later", 9))
    running.until_in_force()
    server.cluster.remove("nodes", NODE, "")
    assert running.ends() == 1
    assert "Node node-1 was deleted" in running.said()
    assert running.holds("10.96.0.7")


def test_another_address_of_the_node_ends_it(running: Started, server: ApiServer) -> None:
    running.until_in_force()
    server.cluster.put("nodes", node(NODE, "192.0.2.12"))
    assert running.ends() == 1
    assert "the addresses of Node node-1 were 192.0.2.11 and are 192.0.2.12" in running.said()


def test_it_needs_its_node_first(namespace: Namespace, server: ApiServer, tmp_path: Path) -> None:
    server.cluster.remove("nodes", NODE, "")
    started = Started(namespace, server, tmp_path)
    started.until(lambda: "waiting: there is no Node node-1" in started.said())
    assert "full sync" not in started.said()
    server.cluster.put("nodes", node(NODE, "192.0.2.11"))
    started.until_in_force()
    started.process.terminate()
    assert started.ends() == 0


def test_nothing_is_programmed_before_all_is_known(namespace: Namespace, server: ApiServer, tmp_path: Path) -> None:
    """A Service whose endpoints are still to come would look like one that has none."""
    server.demand("endpointslices", refuse(403, "endpointslices is forbidden", "Forbidden"), times=10**6)
    started = Started(namespace, server, tmp_path)
    started.until(lambda: "endpointslices" in started.said())
    assert "full sync" not in started.said()
    assert namespace.run(["nft", "list", "tables"]).stdout == ""
    server.relent()
    started.until_in_force()
    assert started.holds("10.244.1.5")
    started.process.terminate()
    assert started.ends() == 0


def test_the_privileged_part_alone(namespace: Namespace, server: ApiServer, tmp_path: Path) -> None:
    """Conntrack is set, no rule made, and nobody asked; what runs after it without privileges finds it done."""
    started = Started(
        namespace,
        server,
        tmp_path,
        "--init-only",
        "--conntrack-tcp-timeout-established=3h",
        "--conntrack-tcp-be-liberal",
    )
    assert started.ends() == 0, started.said()
    assert namespace.read_sysctl("net.netfilter.nf_conntrack_tcp_timeout_established") == "10800"
    assert namespace.read_sysctl("net.netfilter.nf_conntrack_tcp_be_liberal") == "1"
    assert namespace.run(["nft", "list", "tables"]).stdout == ""
    assert server.asked == []


def test_probes_that_cannot_be_served_end_it_where_that_is_asked_for(
    namespace: Namespace, server: ApiServer, tmp_path: Path
) -> None:
    started = Started(
        namespace, server, tmp_path, "--healthz-bind-address=192.0.2.99:10256", "--bind-address-hard-fail"
    )
    assert started.ends() == 1
    assert "the health server failed" in started.said()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--kubeconfig=/nowhere"], "/nowhere"),
        (["--kubeconfig=/dev/null"], "/dev/null"),
        (["--master=https://127.0.0.1:1", "--config=/nowhere"], "/nowhere"),
    ],
)
def test_a_cluster_that_cannot_be_meant_is_one_line(namespace: Namespace, flags: list[str], words: str) -> None:
    done = namespace.run([*KNFT, "run", "--nodeport-addresses=primary", "--node", NODE, *flags], check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("knft: ")
    assert words in line


def test_an_api_server_that_is_not_there_is_waited_for(namespace: Namespace, tmp_path: Path) -> None:
    """The cluster may heal: one warning, no rules, and an end at once when it is asked for."""
    with namespace.entered():
        server = ApiServer()
    server.close()
    started = Started(namespace, server, tmp_path)
    started.until(lambda: "WARNING" in started.said())
    time.sleep(2)
    warnings = [line for line in started.said().splitlines() if "WARNING" in line]
    assert len(warnings) <= 4, warnings
    started.process.terminate()
    assert started.ends() == 0
