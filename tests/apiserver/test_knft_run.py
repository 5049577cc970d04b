"""``knft run`` as in a DaemonSet, against the fake API server: rules, probes, metrics and events."""

import json
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.support.api_server_knft import KEEP_HOST_SYSCTLS, NODE, ApiServerKnft
from tests.support.fake_api.cluster import endpoint_slice, node, service
from tests.support.fake_api.responses import ReceivedRequest, never_respond, respond_status
from tests.support.fake_api.server import FakeApiServer
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.log_lines import messages
from tests.support.processes import worker_processes

pytestmark = pytest.mark.kernel


def test_running_knft_serves_rules_probes_metrics_and_events(knft: ApiServerKnft, server: FakeApiServer) -> None:
    knft.wait_until_programmed()
    assert knft.table_contains("10.96.0.7")
    assert knft.table_contains("10.244.1.5")
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.6"))
    knft.wait_until(lambda: knft.table_contains("10.244.1.6"))
    assert not knft.table_contains("10.244.1.5 .")

    status, body = knft.http_get(10256, "/healthz")
    assert (status, json.loads(body)["nodeEligible"]) == (200, True)
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    server.cluster.put("nodes", node(NODE, "192.0.2.11", taints=[taint]))
    knft.wait_until(lambda: knft.http_get(10256, "/healthz")[0] == 503)
    assert knft.http_get(10256, "/livez")[0] == 200

    host = server.url.removeprefix("http://")
    counted = f'rest_client_requests_total{{code="200",host="{host}",method="GET"}} '
    knft.wait_until(lambda: counted in knft.http_get(10249, "/metrics")[1])
    assert knft.http_get(10249, "/proxyMode") == (200, "nftables")
    configuration = json.loads(knft.http_get(10249, "/configz")[1])["kubeproxy.config.k8s.io"]
    assert configuration["hostnameOverride"] == NODE

    event = json.loads(server.wait_for_request("post").body)
    assert (event["reason"], event["regarding"]["kind"], event["regarding"]["name"]) == ("Starting", "Node", NODE)

    knft.process.send_signal(signal.SIGTERM)
    assert knft.wait_exit() == 0
    assert knft.table_contains("10.244.1.6")


def test_requests_need_only_the_cluster_role(knft: ApiServerKnft, server: FakeApiServer) -> None:
    """Each rule of the role is used, too; ``make test-cluster`` checks the same with a real API server."""
    manifest = Path(__file__).parents[2] / "deploy" / "kustomize" / "base" / "rbac.yaml"
    (role,) = (item for item in yaml.safe_load_all(manifest.read_text()) if item["kind"] == "ClusterRole")
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    knft.wait_until_programmed()
    server.wait_for_request("post")
    request = {_rbac_attributes(each) for each in server.requests}
    assert request <= allowed
    assert {resource for _, resource, _ in request} == {resource for _, resource, _ in allowed}


def _rbac_attributes(request: ReceivedRequest) -> tuple[str, str, str]:
    """Return the group, resource and verb of a request, as in RBAC."""
    words = request.path.strip("/").split("/")
    group, rest = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    verb = "create" if request.method == "POST" else "watch" if request.query.get("watch") == "true" else "list"
    return group, "/".join(rest[2:] if rest[0] == "namespaces" else rest), verb


def test_udp_entry_of_a_removed_endpoint_is_deleted(knft: ApiServerKnft, server: FakeApiServer) -> None:
    """The deletion is counted in a metric, and entries of other endpoints are kept."""
    server.cluster.put("services", service("dns", 8, ports=[{"name": "dns", "port": 53, "protocol": "UDP"}]))
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    slices = endpoint_slice("dns-1", "dns", "10.244.1.7", "10.244.1.8")
    server.cluster.put("endpointslices", {**slices, "ports": ports})
    knft.wait_until(lambda: knft.table_contains("10.244.1.8"))
    for client, endpoint in (("10.244.1.50", "10.244.1.7"), ("10.244.1.51", "10.244.1.8")):
        _add_flow(knft.namespace, client, "10.96.0.8", endpoint)
    server.cluster.put("endpointslices", {**endpoint_slice("dns-1", "dns", "10.244.1.8"), "ports": ports})
    deleted = 'kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 1'
    knft.wait_until(lambda: deleted in knft.http_get(10249, "/metrics")[1])
    flows = knft.namespace.run(["conntrack", "-L", "-p", "udp"]).stdout
    assert "10.244.1.7" not in flows
    assert "10.244.1.8" in flows


def _add_flow(namespace: Namespace, client: str, cluster_ip: str, endpoint: str) -> None:
    """Add a conntrack entry for UDP port 53 that was translated to an endpoint."""
    arguments = f"-I -p udp -s {client} -d {cluster_ip} --sport 5353 --dport 53 -r {endpoint} -q {client}"
    namespace.run(["conntrack", *arguments.split(), "--reply-port-src", "53", "--reply-port-dst", "5353", "-t", "120"])


def test_deleted_node_ends_the_process(knft: ApiServerKnft, server: FakeApiServer) -> None:
    """The rules stay, and the supervisor starts a new process (docs/behaviour/node.md#node)."""
    server.cluster.put("services", service("later", 9))
    knft.wait_until_programmed()
    server.cluster.remove("nodes", NODE, "")
    assert knft.wait_exit() == 1
    assert "Node 'node-1' was deleted" in knft.log_text()
    assert knft.table_contains("10.96.0.7")
    assert knft.table_contains("192.0.2.11")


def test_changed_node_address_ends_the_process(knft: ApiServerKnft, server: FakeApiServer) -> None:
    knft.wait_until_programmed()
    server.cluster.put("nodes", node(NODE, "192.0.2.12"))
    assert knft.wait_exit() == 1
    assert "addresses of Node 'node-1' changed from 192.0.2.11 to 192.0.2.12" in knft.log_text()


def test_knft_waits_for_pod_cidrs_and_exits_when_they_change(
    namespace: Namespace, server: FakeApiServer, tmp_path: Path
) -> None:
    knft = ApiServerKnft(namespace, server, tmp_path, "--detect-local-mode=NodeCIDR")
    knft.wait_until(lambda: "waiting: Node 'node-1' has no podCIDRs" in knft.log_text())
    server.cluster.put("nodes", node(NODE, "192.0.2.11", podCIDRs=["10.244.1.0/24"]))
    knft.wait_until_programmed()
    assert knft.table_contains("10.244.1.0/24")
    server.cluster.put("nodes", node(NODE, "192.0.2.11", podCIDRs=["10.244.9.0/24"]))
    assert knft.wait_exit() == 1
    assert "podCIDRs of Node 'node-1' changed from 10.244.1.0/24 to 10.244.9.0/24" in knft.log_text()
    assert not knft.table_contains("10.244.9.0/24")


def test_changed_zone_is_applied(knft: ApiServerKnft, server: FakeApiServer) -> None:
    """The same process applies it: topology hints depend on the zone."""
    found = endpoint_slice("web-1", "web", "10.244.1.5", "10.244.1.6")
    for endpoint, zone in zip(found["endpoints"], ("a", "b"), strict=True):
        endpoint["hints"] = {"forZones": [{"name": zone}]}
    server.cluster.put("endpointslices", found)
    for zone, here, there in (("a", "10.244.1.5", "10.244.1.6"), ("b", "10.244.1.6", "10.244.1.5")):
        moved = node(NODE, "192.0.2.11")
        moved["metadata"]["labels"] = {"topology.kubernetes.io/zone": zone}
        server.cluster.put("nodes", moved)
        knft.wait_until(lambda here=here, there=there: knft.table_contains(here) and not knft.table_contains(there))  # type: ignore[misc]


def test_start_waits_for_the_node(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    server.cluster.remove("nodes", NODE, "")
    knft = ApiServerKnft(namespace, server, tmp_path)
    knft.wait_until(lambda: "waiting: Node 'node-1' not found" in knft.log_text())
    assert "full sync" not in knft.log_text()
    server.cluster.put("nodes", node(NODE, "192.0.2.11"))
    knft.wait_until_programmed()
    knft.process.terminate()
    assert knft.wait_exit() == 0


def test_hanging_server_is_not_a_missing_node(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    """The log does not report a wrong node name, and the five-minute limit for the Node does not begin."""
    server.respond_next("nodes", never_respond)
    knft = ApiServerKnft(namespace, server, tmp_path)
    knft.wait_until(lambda: "waiting: " in knft.log_text())
    assert "waiting: the API server has not answered yet" in knft.log_text()
    assert "not found" not in knft.log_text()
    knft.process.terminate()
    assert knft.wait_exit() == 0


@pytest.mark.parametrize("resource", ["services", "endpointslices", "nodes"])
def test_no_rules_before_all_resources_are_listed(
    namespace: Namespace, server: FakeApiServer, tmp_path: Path, resource: str
) -> None:
    """Before its EndpointSlices are listed, a Service looks like one without endpoints."""
    server.respond_next(resource, respond_status(403, f"{resource} is forbidden", "Forbidden"), times=10**6)
    knft = ApiServerKnft(namespace, server, tmp_path)
    text = f"not allowed to watch {resource}: {resource} is forbidden; apply deploy/kustomize/base/rbac.yaml; retrying"
    knft.wait_until(lambda: text in messages(knft.log_text(), "W"))
    knft.wait_until(lambda: resource != "nodes" or "waiting: not allowed to watch nodes" in knft.log_text())
    assert "full sync" not in knft.log_text()
    assert namespace.run(["nft", "list", "tables"]).stdout == ""
    server.respond_normally()
    knft.wait_until_programmed()
    assert knft.table_contains("10.244.1.5")
    knft.process.terminate()
    assert knft.wait_exit() == 0


def test_rules_stay_while_the_api_server_is_away(knft: ApiServerKnft, server: FakeApiServer) -> None:
    """They are updated when it is back, without a new table."""
    knft.wait_until_programmed()
    before = knft.namespace.run(["nft", "list", "table", "ip", "knft"]).stdout
    server.close()
    knft.wait_until(lambda: "rules stay as they are" in knft.log_text())
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.6"))
    assert knft.namespace.run(["nft", "list", "table", "ip", "knft"]).stdout == before
    assert knft.http_get(10256, "/healthz")[0] == 200
    with knft.namespace.entered():
        again = FakeApiServer(server.cluster, port=server.server_port)
    with again:
        knft.wait_until(lambda: knft.table_contains("10.244.1.6"))
        assert again.kinds_of_requests("endpointslices")[0] == "watch"
        assert knft.log_text().count("full sync") == 2


@pytest.mark.parametrize(
    "source", [[], ["--kubeconfig", "/nonexistent"], ["--manifests", "/nonexistent", "--node", NODE]], ids=str
)
def test_init_only_sets_sysctls_and_exits(namespace: Namespace, source: list[str]) -> None:
    """A later unprivileged process needs the sysctls. ``--init-only`` makes no rules and reads no objects."""
    conntrack = ["--conntrack-tcp-timeout-established=3h", "--conntrack-tcp-be-liberal"]
    command = [*KNFT, "run", "--init-only", *source, *KEEP_HOST_SYSCTLS, *conntrack]
    done = namespace.run(command, check=False)
    assert done.returncode == 0, done.stderr
    assert namespace.read_sysctl("net.netfilter.nf_conntrack_tcp_timeout_established") == "10800"
    assert namespace.read_sysctl("net.netfilter.nf_conntrack_tcp_be_liberal") == "1"
    assert namespace.run(["nft", "list", "tables"]).stdout == ""


def test_oom_score_applies_to_the_worker_process(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    knft = ApiServerKnft(namespace, server, tmp_path, "--oom-score-adj=321")
    knft.wait_until_programmed()
    processes = [knft.process.pid, *worker_processes(knft.process.pid)]
    assert [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in processes] == ["321\n", "321\n"]
    knft.process.terminate()
    assert knft.wait_exit() == 0


def test_every_log_line_is_json(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    """This includes the last line, with the reason for the exit."""
    knft = ApiServerKnft(namespace, server, tmp_path, "--logging-format=json", "-v=2")
    knft.wait_until_programmed()
    server.cluster.remove("nodes", NODE, "")
    assert knft.wait_exit() == 1
    lines = [json.loads(line) for line in knft.log_text().splitlines()]
    assert (lines[-1]["severity"], "was deleted" in lines[-1]["msg"]) == ("error", True)


def test_knft_waits_for_a_missing_api_server(namespace: Namespace, tmp_path: Path) -> None:
    """The server may come back: knft logs few warnings, makes no rules, and exits at once on SIGTERM."""
    with namespace.entered():
        server = FakeApiServer()
    server.close()
    knft = ApiServerKnft(namespace, server, tmp_path)
    # Other warnings come earlier, while a signal still ends the process with its number.
    knft.wait_until(lambda: "connection refused" in knft.log_text())
    time.sleep(2)  # Nothing reports that no more warnings come.
    warnings = messages(knft.log_text(), "W")
    assert len(warnings) <= 4, warnings
    knft.process.terminate()
    assert knft.wait_exit() == 0
