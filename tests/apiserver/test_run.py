"""``knft run`` as a DaemonSet runs it, against the small API server: what it follows, answers and counts."""

import json
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.apiserver.answers import Asked, hang, refuse
from tests.apiserver.cluster import endpoint_slice, node, service
from tests.apiserver.server import ApiServer
from tests.apiserver.started import NODE, Started
from tests.packets.running import workers_of
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


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
