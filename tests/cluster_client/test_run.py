"""``knft run`` as a DaemonSet runs it, against the small API server: what it follows, answers, counts, and ends by."""

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from knft.cli.ending import Ending
from knft.cli.run import PATIENCE
from knft.cluster.connection import Connection
from knft.cluster.source import ClusterSource
from knft.configuration.settings import ClientSettings
from tests.cluster_client.cluster import endpoint_slice, node, service
from tests.cluster_client.server import ApiServer, Asked, hang, refuse
from tests.lab.links import netlink
from tests.lab.namespace import Namespace
from tests.packets.node import KNFT
from tests.packets.running import workers_of

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
        namespace.at_close(self.kill)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

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
        return words in self.namespace.run(["nft", "list", "table", "ip", "knft"], check=False).stdout

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
def running(namespace: Namespace, server: ApiServer, tmp_path: Path) -> Started:
    return Started(namespace, server, tmp_path, "--min-sync-period=0")


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


def test_it_asks_for_nothing_that_its_role_does_not_allow(running: Started, server: ApiServer) -> None:
    """And for something by each of the role's rules; a real API server is asked in ``make test-cluster``."""
    manifest = Path(__file__).parents[2] / "deploy" / "rbac.yaml"
    (role,) = (item for item in yaml.safe_load_all(manifest.read_text()) if item["kind"] == "ClusterRole")
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    running.until_in_force()
    server.wait_for("post")
    asked = {_right(each) for each in server.asked}
    assert asked <= allowed
    assert {resource for _, resource, _ in asked} == {resource for _, resource, _ in allowed}


def _right(asked: Asked) -> tuple[str, str, str]:
    """Return group, resource and verb, as RBAC sees a request."""
    words = asked.path.strip("/").split("/")
    group, rest = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    verb = "create" if asked.method == "POST" else "watch" if asked.query.get("watch") == "true" else "list"
    return group, "/".join(rest[2:] if rest[0] == "namespaces" else rest), verb


def test_a_flow_whose_endpoint_goes_is_forgotten(running: Started, server: ApiServer) -> None:
    """And counted; one that another protocol has, or that leads to an endpoint that stays, is not."""
    server.cluster.put("services", service("dns", 8, ports=[{"name": "dns", "port": 53, "protocol": "UDP"}]))
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    slices = endpoint_slice("dns-1", "dns", "10.244.1.7", "10.244.1.8")
    server.cluster.put("endpointslices", {**slices, "ports": ports})
    running.until(lambda: running.holds("10.244.1.8"))
    for client, endpoint in (("10.244.1.50", "10.244.1.7"), ("10.244.1.51", "10.244.1.8")):
        _add_flow(running.namespace, client, "10.96.0.8", endpoint)
    server.cluster.put("endpointslices", {**endpoint_slice("dns-1", "dns", "10.244.1.8"), "ports": ports})
    deleted = 'kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 1'
    running.until(lambda: deleted in running.get(10249, "/metrics")[1])
    flows = running.namespace.run(["conntrack", "-L", "-p", "udp"]).stdout
    assert "10.244.1.7" not in flows
    assert "10.244.1.8" in flows


def _add_flow(namespace: Namespace, client: str, dialled: str, endpoint: str) -> None:
    """Have conntrack know a UDP flow to port 53 that was led to an endpoint."""
    arguments = f"-I -p udp -s {client} -d {dialled} --sport 5353 --dport 53 -r {endpoint} -q {client}"
    namespace.run(["conntrack", *arguments.split(), "--reply-port-src", "53", "--reply-port-dst", "5353", "-t", "120"])


def test_it_waits_for_its_node_and_ends_with_it(running: Started, server: ApiServer) -> None:
    """Rules stay, and whoever supervises it starts it again (J.3)."""
    server.cluster.put("services", service("later", 9))
    running.until_in_force()
    server.cluster.remove("nodes", NODE, "")
    assert running.ends() == 1
    assert "Node node-1 was deleted" in running.said()
    assert running.holds("10.96.0.7")
    assert running.holds("192.0.2.11")


def test_another_address_of_the_node_ends_it(running: Started, server: ApiServer) -> None:
    running.until_in_force()
    server.cluster.put("nodes", node(NODE, "192.0.2.12"))
    assert running.ends() == 1
    assert "the addresses of Node node-1 were 192.0.2.11 and are 192.0.2.12" in running.said()


def test_pod_cidrs_are_waited_for_and_end_it_where_they_matter(
    namespace: Namespace, server: ApiServer, tmp_path: Path
) -> None:
    started = Started(namespace, server, tmp_path, "--detect-local-mode=NodeCIDR")
    started.until(lambda: "waiting: Node node-1 has no podCIDRs" in started.said())
    server.cluster.put("nodes", node(NODE, "192.0.2.11", podCIDRs=["10.244.1.0/24"]))
    started.until_in_force()
    assert started.holds("10.244.1.0/24")
    server.cluster.put("nodes", node(NODE, "192.0.2.11", podCIDRs=["10.244.9.0/24"]))
    assert started.ends() == 1
    assert "the podCIDRs of Node node-1 were 10.244.1.0/24 and are 10.244.9.0/24" in started.said()
    assert not started.holds("10.244.9.0/24")


def test_another_zone_of_the_node_is_followed(running: Started, server: ApiServer) -> None:
    """By the same process: it says for whom an endpoint is."""
    found = endpoint_slice("web-1", "web", "10.244.1.5", "10.244.1.6")
    for endpoint, zone in zip(found["endpoints"], ("a", "b"), strict=True):
        endpoint["hints"] = {"forZones": [{"name": zone}]}
    server.cluster.put("endpointslices", found)
    for zone, here, there in (("a", "10.244.1.5", "10.244.1.6"), ("b", "10.244.1.6", "10.244.1.5")):
        moved = node(NODE, "192.0.2.11")
        moved["metadata"]["labels"] = {"topology.kubernetes.io/zone": zone}
        server.cluster.put("nodes", moved)
        running.until(lambda here=here, there=there: running.holds(here) and not running.holds(there))  # type: ignore[misc]


def test_it_needs_its_node_first(namespace: Namespace, server: ApiServer, tmp_path: Path) -> None:
    server.cluster.remove("nodes", NODE, "")
    started = Started(namespace, server, tmp_path)
    started.until(lambda: "waiting: there is no Node node-1" in started.said())
    assert "full sync" not in started.said()
    server.cluster.put("nodes", node(NODE, "192.0.2.11"))
    started.until_in_force()
    started.process.terminate()
    assert started.ends() == 0


def test_a_server_that_says_nothing_is_no_missing_node(namespace: Namespace, server: ApiServer, tmp_path: Path) -> None:
    """It takes the requests and hangs: nobody is to look for a wrong name, nor do five minutes begin."""
    server.demand("nodes", hang)
    started = Started(namespace, server, tmp_path)
    started.until(lambda: "waiting: " in started.said())
    assert "waiting: the API server has not answered yet" in started.said()
    assert "there is no Node" not in started.said()
    started.process.terminate()
    assert started.ends() == 0


@pytest.mark.parametrize("resource", ["services", "endpointslices", "nodes"])
def test_nothing_is_programmed_before_all_is_known(
    namespace: Namespace, server: ApiServer, tmp_path: Path, resource: str
) -> None:
    """A Service whose endpoints are still to come would look like one that has none."""
    server.demand(resource, refuse(403, f"{resource} is forbidden", "Forbidden"), times=10**6)
    started = Started(namespace, server, tmp_path)
    said = f"WARNING knft may not watch {resource}: {resource} is forbidden; grant it (deploy/rbac.yaml)"
    started.until(lambda: said in started.said())
    started.until(lambda: resource != "nodes" or "waiting: knft may not watch nodes" in started.said())
    assert "full sync" not in started.said()
    assert namespace.run(["nft", "list", "tables"]).stdout == ""
    server.relent()
    started.until_in_force()
    assert started.holds("10.244.1.5")
    started.process.terminate()
    assert started.ends() == 0


def test_rules_stay_while_the_api_server_is_away(running: Started, server: ApiServer) -> None:
    """And follow when it is back, without a table that was made anew."""
    running.until_in_force()
    before = running.namespace.run(["nft", "list", "table", "ip", "knft"]).stdout
    server.close()
    running.until(lambda: "rules stay as they are" in running.said())
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.6"))
    assert running.namespace.run(["nft", "list", "table", "ip", "knft"]).stdout == before
    assert running.get(10256, "/healthz")[0] == 200
    with running.namespace.entered():
        again = ApiServer(server.cluster, port=server.server_port)
    with again:
        running.until(lambda: running.holds("10.244.1.6"))
        assert again.forms("endpointslices")[0] == "watch"
        assert running.said().count("full sync") == 2


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


def test_memory_settings_are_those_of_the_library_too(namespace: Namespace, server: ApiServer, tmp_path: Path) -> None:
    started = Started(namespace, server, tmp_path, "--oom-score-adj=321")
    started.until_in_force()
    processes = [started.process.pid, *workers_of(started.process.pid)]
    assert [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in processes] == ["321\n", "321\n"]
    started.process.terminate()
    assert started.ends() == 0


def test_every_line_is_an_object_where_that_is_asked_for(
    namespace: Namespace, server: ApiServer, tmp_path: Path
) -> None:
    """The last one, too, which says why it ends."""
    started = Started(namespace, server, tmp_path, "--logging-format=json", "-v=2")
    started.until_in_force()
    server.cluster.remove("nodes", NODE, "")
    assert started.ends() == 1
    lines = [json.loads(line) for line in started.said().splitlines()]
    assert (lines[-1]["severity"], "was deleted" in lines[-1]["msg"]) == ("error", True)


def test_the_event_of_a_hard_failure_is_sent(namespace: Namespace, server: ApiServer, tmp_path: Path) -> None:
    started = Started(
        namespace, server, tmp_path, "--healthz-bind-address=192.0.2.99:10256", "--bind-address-hard-fail"
    )
    assert started.ends() == 1
    posted = [json.loads(asked.body)["reason"] for asked in server.asked if asked.form == "post"]
    assert "FailedToStartProxierHealthcheck" in posted


def test_a_source_that_breaks_unexpectedly_ends_it() -> None:
    """Loudly: with what happened, and a status that has it started again."""
    stop = threading.Event()
    ending = Ending(stop, patience=0, leave=lambda _: None)
    source = ClusterSource(Connection(ClientSettings(server="http://127.0.0.1:1")), NODE, _fail, failed=ending.fail)
    source._followers = {"services": _Broken()}  # type: ignore[dict-item]
    source._follow(source._followers["services"], stop)
    with pytest.raises(RuntimeError, match="nobody has thought of this"):
        ending.raise_failure()


def _fail(_: object) -> None:
    raise AssertionError


class _Broken:
    def run(self, _: threading.Event) -> None:
        message = "nobody has thought of this"
        raise RuntimeError(message)


@pytest.mark.parametrize("stuck", ["a signal", "a failure"])
def test_it_ends_although_libnftables_hangs(
    namespace: Namespace, server: ApiServer, tmp_path: Path, stuck: str
) -> None:
    """A commit is carried out as a whole or not at all, whether or not anybody waits for it."""
    # The rest of the second is for the interpreter's lock, and for the kernel to take the memory back.
    assert PATIENCE <= 0.5
    started = Started(namespace, server, tmp_path, "--min-sync-period=0")
    started.until_in_force()
    (worker,) = workers_of(started.process.pid)
    before = _changes(started)
    os.kill(worker, signal.SIGSTOP)
    server.cluster.put("services", service("another", 10))
    started.until(lambda: _changes(started) > before)
    # Of waiting for the library nothing is to be seen.
    time.sleep(0.5)
    if stuck == "a signal":
        started.process.terminate()
        assert started.ends() == 0
    else:
        server.cluster.remove("nodes", NODE, "")
        assert started.ends() == 1
        assert "was deleted" in started.said()


def _changes(started: Started) -> float:
    name = "kubeproxy_sync_proxy_rules_service_changes_total "
    lines = started.get(10249, "/metrics")[1].splitlines()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_signal_ends_it_while_it_starts(namespace: Namespace, tmp_path: Path) -> None:
    """Also as a container's first process, which ignores what it has no handler for."""
    plugin = tmp_path / "plugin"
    plugin.write_text("#!/bin/sh\ntouch $0.started\nexec sleep 60\n")
    plugin.chmod(0o755)
    kubeconfig = tmp_path / "kubeconfig"
    execute = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    content = _kubeconfig("http://127.0.0.1:1")
    content["users"][0]["user"] = {"exec": execute}
    kubeconfig.write_text(json.dumps(content))
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        *KNFT,
        "run",
        f"--kubeconfig={kubeconfig}",
        "--node=node-1",
    ]
    process = namespace.popen(command)
    namespace.at_close(process.kill)
    deadline = time.monotonic() + HANG
    while not (tmp_path / "plugin.started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (first,) = _children(process.pid)
    os.kill(first, signal.SIGTERM)
    assert process.wait(HANG) == 128 + signal.SIGTERM


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


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
