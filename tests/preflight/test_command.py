"""``knft preflight`` on nodes in network namespaces: real rules, conntrack entries and programs."""

import json
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from knft.cli.commands import cli
from knft.cli.options import config_from_options
from knft.cli.preflight import diff_flags, load_configuration
from knft.config import Config
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError, ConfigurationError, SourceError, UsageError
from knft.preflight.cluster import list_objects
from knft.preflight.configuration import check_configuration
from knft.preflight.report import State
from tests.support.api_server_knft import kubeconfig_for
from tests.support.conntrack_entries import Entry, add_entries, listed_entries
from tests.support.containers import in_container
from tests.support.fake_api.server import FakeApiServer
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.loaded_examples import ADDRESSES, EXAMPLES, NODE, load_iptables, machine_state
from tests.support.logged_process import LoggedProcess
from tests.support.newer_sets import add_newer_set
from tests.support.nft_library_version import CAN_READ_NEWER_SETS
from tests.support.nft_process import library_in
from tests.support.old_node import OldNode

pytestmark = pytest.mark.kernel

_COLLECTIONS = {
    "Service": "services",
    "EndpointSlice": "endpointslices",
    "ServiceCIDR": "servicecidrs",
    "Node": "nodes",
}
OBJECTS = ("-f", str(EXAMPLES), *NODE)
SHOP_IP, DNS_IP = "10.96.0.10", "10.96.0.53"
FOREIGN = """
table inet firewall {
    chain early { type nat hook prerouting priority -101; }
    chain beside { type filter hook forward priority 0; policy drop; }
}
table ip other {
    chain translating {
        type nat hook output priority -150;
        ip daddr 10.96.0.10 tcp dport 80 dnat to 192.0.2.11:9000
        ip daddr 10.96.0.53 udp dport 53 dnat to 192.0.2.11:9001
    }
}
"""
MARKING = """
table inet firewall {
    chain early {
        type filter hook prerouting priority 0; meta mark set meta mark or 0x4000;
    }
}
table ip raw {
    chain PREROUTING {
        type filter hook prerouting priority -300; meta mark set numgen inc mod 2;
    }
}
table ip filter {
    chain own {
        type filter hook forward priority 9; meta mark and 0x4000 == 0x4000 drop;
    }
}
"""


def preflight(node: Namespace, *arguments: str, status: int = 0, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the points by name, and the summary."""
    done = node.run([*prefix, *KNFT, "preflight", *arguments, "-o", "json"], check=False)
    assert done.returncode == status, done.stderr + done.stdout
    assert done.stderr == ""
    found = json.loads(done.stdout)
    return {point["name"]: point for point in found["points"]} | {"summary": found["summary"]}


def texts(point: dict[str, Any], state: str) -> list[str]:
    return [finding["text"] for finding in point["findings"] if finding["state"] == state]


def test_node_without_rules_is_ready_in_a_read_only_container_without_terminal(node: Namespace) -> None:
    """The file system is read-only, and the capabilities are those of an init container."""
    before = machine_state(node)
    script = 'mount -o remount,bind,ro / && ! touch /read-only 2>/dev/null && exec "$@"'
    capabilities = "-all,+net_admin,+net_raw"
    limited = ("setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}", "--no-new-privs")
    done = node.run(["unshare", "-m", "sh", "-ec", script, "sh", *limited, *KNFT, "preflight"], check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ready, as far as checked: ")
    assert "\n\nkernel: ok\n  ok           Linux " in done.stdout
    assert machine_state(node) == before


@contextmanager
def open_flows(node: Namespace) -> Iterator[None]:
    """Keep a TCP and a UDP flow open, both to Services, and answered by servers of the node that are no endpoints."""
    with ExitStack() as stack:
        with node.entered():
            listener = stack.enter_context(socket.create_server((ADDRESSES[0], 9000)))
            server = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            server.bind((ADDRESSES[0], 9001))
            stack.enter_context(socket.create_connection((SHOP_IP, 80), timeout=60))
            client = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            client.settimeout(60)
            client.sendto(b"?", (DNS_IP, 53))
            server.settimeout(60)
            server.sendto(b"!", server.recvfrom(9)[1])
            assert client.recv(9) == b"!"
        stack.enter_context(listener.accept()[0])
        yield


def test_node_of_kube_proxy_with_rules_of_other_programs(node: Namespace) -> None:
    node.run(["ip", "route", "add", "10.96.0.0/16", "dev", "lo", "src", ADDRESSES[0]])
    node.run(["ip", "rule", "add", "fwmark", "0x4000/0x4000", "lookup", "100"])
    node.run(["nft", "-f", "-"], stdin=FOREIGN)
    load_iptables(node)
    node.run(["iptables-nft", "-P", "FORWARD", "DROP"])
    node.run(["iptables-nft", "-t", "mangle", "-A", "PREROUTING", "-j", "MARK", "--set-xmark", "0x4000/0x4000"])
    with open_flows(node):
        before = machine_state(node)
        found = preflight(node, *OBJECTS, "--foreign-tables")
        assert machine_state(node) == before
    _check_other_programs(found)
    _check_flows(found)
    assert texts(found["kube-proxy"], "ok") == [
        "kube-proxy has rules of mode iptables: 20 chains in iptables-nft, 20 chains in ip6tables-nft"
    ]
    (drop,) = texts(found["kube-proxy"], "warning")
    assert drop.startswith("chain FORWARD of iptables-nft drops packets by default; kube-proxy's chain KUBE-FORWARD ")
    assert texts(found["comparison"], "ok")
    (losing,) = (text for text in texts(found["comparison"], "warning") if "some clients" in text)
    assert "would no longer reach a Service: packets to 2 Services (kube-system/names, shop/frontend); " in losing
    assert losing.endswith("NodePorts on loopback, forwarding rules")
    assert not texts(found["comparison"], "problem")

    # Rules of an older sync: an endpoint is missing.
    chain = next(
        line.split()[1]
        for line in node.run(["iptables-nft-save", "-t", "nat"]).stdout.splitlines()
        if line.startswith("-A KUBE-SEP-") and "shop/frontend" in line and "-j DNAT" in line
    )
    node.run(["iptables-nft", "-t", "nat", "-F", chain])
    changed = preflight(node, *OBJECTS, status=3)
    assert changed["summary"] == "not ready: 1 problem, in comparison"
    (problem,) = texts(changed["comparison"], "problem")
    assert (
        problem
        == "packets to 1 Service (shop/frontend) have other outcomes with knft than with the rules in the kernel"
    )


def _check_other_programs(found: dict[str, Any]) -> None:
    assert [text.partition(" (")[0] for text in texts(found["base chains"], "warning")] == [
        "inet firewall early",
        "ip other translating",
    ]
    before, beside = texts(found["base chains"], "ok")
    assert "ip nat PREROUTING" in before
    assert "inet firewall beside" in beside
    (mark,) = texts(found["packet mark"], "warning")
    assert "iptables-nft, table mangle: -A PREROUTING -j MARK --set-xmark 0x4000/0x4000" in mark
    assert "(IPv4, fwmark 0x4000/0x4000)" in mark
    assert texts(found["packet mark"], "not checked") == []


def test_mark_in_tables_of_other_programs(node: Namespace) -> None:
    """iptables-save does not print all of table filter, and nothing of table raw, because only nft can list them."""
    node.run(["iptables-nft", "-A", "FORWARD", "-m", "mark", "--mark", "0x4000/0x4000", "-j", "ACCEPT"])
    node.run(["nft", "-f", "-"], stdin=MARKING)
    assert texts(preflight(node)["packet mark"], "not checked") == [
        "rules of nftables tables of other programs were not read: inet firewall, ip filter, ip raw"
    ]
    point = preflight(node, "--foreign-tables")["packet mark"]
    (finding,) = point["findings"]
    assert finding["state"] == "warning"
    assert finding["text"] == (
        "other rules use bit 14 of the packet mark (0x4000), too: "
        "iptables-nft, table filter: -A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT; "
        "nftables, table inet firewall, chain early: meta mark set meta mark | 0x00004000; "
        "nftables, table ip filter, chain own: meta mark & 0x00004000 16384 drop and 1 more rule"
    )
    other_bit = MARKING.partition("table ip raw")[0].replace("0x4000", "0x8000")
    node.run(["nft", "-f", "-"], stdin=f"flush ruleset\n{other_bit}")
    assert [finding["state"] for finding in preflight(node, "--foreign-tables")["packet mark"]["findings"]] == ["ok"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("flags owner;", "old versions of libnftables list flag owner incorrectly"),
        ("", "the JSON is truncated; capture the rule set again"),
    ],
)
def test_truncated_listing(node: Namespace, monkeypatch: pytest.MonkeyPatch, flags: str, reason: str) -> None:
    """What libnftables 1.0.6 prints as flag owner is arbitrary. The node is ready all the same."""
    library_in(node).run(f"table inet owned {{ {flags} }}")
    monkeypatch.setattr("knft.preflight.machine.list_foreign_table_json", lambda *_: '{"nftables": [{"table"')
    with node.entered():
        done = CliRunner().invoke(cli, ["preflight", "--foreign-tables", "-o", "json"])
    found = json.loads(done.stdout)
    assert found["verdict"] == "ready"
    (finding, _) = next(point["findings"] for point in found["points"] if point["name"] == "packet mark")
    assert finding["text"] == f"rules of nftables table inet owned were not read: {reason}"
    assert finding["remedy"] == "look for the masquerade bit in `nft list table inet owned`"


def _check_flows(found: dict[str, Any]) -> None:
    udp, tcp = texts(found["connections"], "warning")
    assert udp.startswith("1 UDP connection to kube-system/names:dns: the destination is 192.0.2.11:9001, which is no ")
    assert tcp.startswith("1 TCP connection to shop/frontend:http: the destination is 192.0.2.11:9000, which is no ")


def test_leftovers_of_several_modes_are_found(old_node: OldNode) -> None:
    old_node.add_iptables_mode("nft")
    old_node.add_ipvs_mode("legacy")
    old_node.add_nftables_mode()
    point = preflight(old_node.namespace)["kube-proxy"]
    several, through_ipvs = texts(point, "warning")
    assert several == "rules of modes iptables and ipvs and nftables are in force at the same time"
    assert through_ipvs.startswith("connections through IPVS end")
    assert texts(point, "ok") == [
        "kube-proxy has rules of mode iptables: 18 chains in iptables-nft, 18 chains in ip6tables-nft",
        "kube-proxy has rules of mode ipvs: 11 chains in iptables-legacy, 11 chains in ip6tables-legacy, 34 ipsets",
        "kube-proxy has rules of mode nftables: ip kube-proxy, ip6 kube-proxy",
    ]


def test_full_conntrack_table_is_a_problem(node: Namespace, tmp_path: Path) -> None:
    """The limit is the host's, so that the process sees another one in its mount namespace. The entries are real."""
    limit = tmp_path / "nf_conntrack_max"
    limit.write_text("20\n")
    with node.entered():
        add_entries(Entry("UDP", ("192.0.2.100", 2000 + n), (DNS_IP, 53), ("10.244.1.20", 53)) for n in range(20))
    script = f'mount --bind {limit} /proc/sys/net/netfilter/nf_conntrack_max && exec "$@"'
    found = preflight(node, status=3, prefix=("unshare", "-m", "sh", "-ec", script, "sh"))
    (problem,) = texts(found["conntrack"], "problem")
    assert problem == "20 of 20 entries are used: the kernel drops packets of new connections"


def test_ipv6_connections_are_checked(node: Namespace, tmp_path: Path) -> None:
    """Entries in another zone, and of TCP connections that are not established, are left out."""
    cluster_ip, endpoint = "fd00:10:96::53", "fd00:10:244:9::9"
    flows = [
        Entry("UDP", ("2001:db8:1::100", 2000), (cluster_ip, 53), (endpoint, 53)),
        Entry("UDP", ("2001:db8:1::100", 2001), (cluster_ip, 53), (endpoint, 53), zone=7),
        Entry("TCP", ("2001:db8:1::100", 2002), (cluster_ip, 53), (endpoint, 53)),
    ]
    with node.entered():
        add_entries(flows)
    (warning,) = texts(preflight(node, *OBJECTS)["connections"], "warning")
    assert warning.startswith(f"1 UDP connection to kube-system/names:dns: the destination is [{endpoint}]:53, which ")
    assert "knft deletes the conntrack entries at its first sync" in warning
    knft = LoggedProcess(node, [*KNFT, "run", "--manifests", str(EXAMPLES), *NODE], tmp_path / "log")
    try:
        with node.entered():
            knft.wait_until(lambda: listed_entries(6) == set(flows[1:]))
    finally:
        knft.process.kill()
        knft.process.wait()


def test_objects_of_an_api_server(node: Namespace, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with node.entered():
        server = FakeApiServer()
        add_entries([Entry("UDP", ("192.0.2.100", 2000), (DNS_IP, 53), ("10.244.9.9", 53))])
    with server:
        settings = kubeconfig_for(server.url)
        settings["users"][0]["user"] = {}  # The server has no TLS.
        kubeconfig.write_text(json.dumps(settings))
        for file in EXAMPLES.iterdir():
            for item in yaml.safe_load_all(file.read_text()):
                server.cluster.put(_COLLECTIONS[item["kind"]], item)
        found = preflight(node, "--kubeconfig", str(kubeconfig), *NODE)
        (warning,) = texts(found["connections"], "warning")
        assert warning.startswith("1 UDP connection to kube-system/names:dns: the destination is 10.244.9.9:53, ")
    with pytest.raises(ApiServerError, match="connection refused"):
        list_objects(ClientSettings(str(kubeconfig)), "node-1", problem_seconds=0.1)


def test_set_of_a_newer_library(node: Namespace) -> None:
    with node.entered():
        add_newer_set("ip", "mine", "newer")
    found = preflight(node, status=0 if CAN_READ_NEWER_SETS else 3)
    (finding,) = found["libnftables"]["findings"]
    assert ("in ip mine (newer)" in finding["text"]) is not CAN_READ_NEWER_SETS


def test_failing_program_leaves_the_verdict_undecided(node: Namespace, tmp_path: Path) -> None:
    save = tmp_path / "ip6tables-nft-save"
    save.write_text("#!/bin/sh\necho 'cannot read rules' >&2\nexit 1\n")
    save.chmod(stat.S_IRWXU)
    found = preflight(node, status=1, prefix=("env", f"PATH={tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"))
    assert found["summary"] == "undecided: 1 check failed, in kube-proxy"
    assert texts(found["kube-proxy"], "not checked") == ["rules of kube-proxy: ip6tables-nft-save: cannot read rules"]


def test_worker_that_cannot_start_leaves_the_other_checks(node: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade that replaced the interpreter."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python3")
    with node.entered():
        done = CliRunner().invoke(cli, ["preflight", "--foreign-tables", "-o", "json"])
    assert isinstance(done.exception, SystemExit), done.exception
    found = json.loads(done.stdout)
    assert found["summary"] == "not ready: 1 problem, in libnftables"
    points = {point["name"]: point for point in found["points"]}
    (problem,) = texts(points["libnftables"], "problem")
    assert problem.startswith("cannot start the libnftables worker process: ")
    assert texts(points["kernel"], "not checked")
    assert texts(points["kube-proxy"], "ok")


@pytest.mark.parametrize(
    ("fields", "state", "words"),
    [
        ("mode: ipvs\nipvs: {scheduler: lc}\n", "warning", "ipvs.scheduler: 'lc' has no effect"),
        ("mode: ipvs\n", "warning", "nodePortAddresses: not set"),
        ("mode: userspace\n", "problem", "mode: 'userspace'"),
        ("mode: nftables\nconntrack: {tcpBeLiberal: true}\n", "ok", "every field of "),
    ],
)
def test_configuration_file(tmp_path: Path, fields: str, state: State, words: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{fields}")
    options = {"config": str(file), "node": "n", "node_ip": (), "service_cidr": (), "drop_invalid_packets": True}
    config, conntrack, facts = load_configuration(options)
    assert config.drop_invalid_packets is (state != "problem")
    found = tuple(check_configuration(facts))
    assert any(finding.state == state and words in finding.text for finding in found), found
    assert conntrack.tcp_be_liberal is ("tcpBeLiberal" in fields)


def test_invalid_configuration_is_a_problem_and_its_objects_are_not_compared(node: Namespace, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: userspace\n")
    found = preflight(node, "--config", str(file), "-f", str(EXAMPLES), "--node", "node-1", status=3)
    assert found["summary"] == "not ready: 1 problem, in configuration"
    assert texts(found["comparison"], "not checked") == ["the configuration is invalid"]


def test_wrong_name_of_the_node_is_a_warning(node: Namespace) -> None:
    found = preflight(node, "-f", str(EXAMPLES), "--node", "node-7")
    (warning, *_) = texts(found["node"], "warning")
    assert warning == "--node: there is no Node 'node-7'; the Nodes are node-1"
    (unknown,) = texts(found["node"], "not checked")
    assert unknown == (
        "the objects have no Node 'node-7', so the comparison does not know its zone, its pod CIDRs and, without "
        "--node-ip, its addresses"
    )
    assert not [text for text in texts(found["comparison"], "warning") if "--node" in text]


def test_node_that_only_endpoints_name_is_not_checked(node: Namespace, tmp_path: Path) -> None:
    items = [item for file in EXAMPLES.iterdir() for item in yaml.safe_load_all(file.read_text())]
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(item for item in items if item["kind"] != "Node"))
    found = preflight(node, "-f", str(tmp_path), "--node", "node-1", "--node-ip", ",".join(ADDRESSES))
    assert [finding["state"] for finding in found["node"]["findings"]] == ["not checked"]
    assert found["summary"].startswith("ready, as far as checked: ")


@pytest.mark.parametrize(
    "config",
    [
        Config("node-1"),
        Config(
            "node-1", ("192.0.2.11",), "BridgeInterface", pod_interface="cni0", masquerade_all=True, masquerade_bit=3
        ),
        Config("node-1", detect_local_mode="InterfaceNamePrefix", pod_interface="veth*", nodeport_addresses=("all",)),
        Config(
            "node-1",
            detect_local_mode="NodeCIDR",
            service_cidrs=("10.96.0.0/12", "fd00::/108"),
            nodeport_addresses=("192.0.2.0/24",),
        ),
        Config("node-1", cluster_cidrs=("10.244.0.0/16", "fd00:10:244::/48")),
        Config("node-1", drop_invalid_packets=True),
    ],
)
def test_remedy_names_the_flags_with_which_diff_renders_the_same_rules(config: Config) -> None:
    arguments = list(diff_flags(("objects.yaml",), config))
    options = cli.commands["diff"].make_context("diff", [*arguments, "--live"]).params
    assert options["paths"] == ("objects.yaml",)
    assert config_from_options(options) == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", str(EXAMPLES)], "--node is required with -f"),
        (["--cluster-cidr", "10.0.0.0/8"], "--cluster-cidr requires -f"),
        (["--node", "node-1"], "--node requires -f or --kubeconfig: without objects, no check depends on it"),
        (["--node-ip", "192.0.2.11", "--masquerade-bit", "3"], "--node-ip requires -f or --kubeconfig"),
        (["--config", "f", "--masquerade-all"], "--masquerade-all cannot be used with --config; set the field in it"),
        (
            ["--config", "f", "--node", "node-1"],
            "--node requires -f or --kubeconfig: without objects, no check depends",
        ),
        (["--config", "f", "--service-cidr", "10.0.0.0/8"], "--service-cidr requires -f or --kubeconfig"),
        (["--config", "/nonexistent"], "/nonexistent: No such file or directory"),
        (["-f", "/nonexistent", *NODE], "/nonexistent"),
        (["-f", str(EXAMPLES), *NODE, "--kubeconfig", "f"], "-f cannot be used with --kubeconfig"),
        (["--kubeconfig", "/nonexistent"], "/nonexistent"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    """``knft.cli.main`` gives these errors status 2."""
    done = CliRunner().invoke(cli, ["preflight", *arguments])
    assert isinstance(done.exception, UsageError | SourceError | ConfigurationError)
    assert message in str(done.exception)
    assert done.stdout == ""


def test_missing_privilege_has_status_2(node: Namespace) -> None:
    done = node.run(["setpriv", "--bounding-set=-net_admin", *KNFT, "preflight"], check=False)
    assert done.returncode == 2
    assert done.stderr == "knft: CAP_NET_ADMIN is missing: run knft as root, or give its container that capability\n"


@pytest.mark.parametrize(
    ("mode", "status", "verdict"),
    [
        ("nftables", 0, "ready, as far as checked: 3 points were not checked\n"),
        ("userspace", 3, "not ready: 1 problem, in configuration\n"),
    ],
)
def test_init_container_of_the_documentation_lets_knft_start_if_the_node_is_ready(
    kube_proxy_node: Namespace, tmp_path: Path, mode: str, status: int, verdict: str
) -> None:
    """With its arguments, capabilities and read-only root file system, and no terminal; iptables-legacy is read too."""
    page = (Path(__file__).parents[2] / "docs" / "operations" / "preflight.md").read_text()
    (container,) = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])["initContainers"]
    context, (mount,) = container["securityContext"], container["volumeMounts"]
    assert (context["readOnlyRootFilesystem"], context["capabilities"]["drop"]) == (True, ["ALL"])
    config = tmp_path / "config.yaml"
    config.write_text(f"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: {mode}\n")
    arguments = [each.replace(mount["mountPath"], str(tmp_path)) for each in container["args"]]
    command = [*in_container(*context["capabilities"]["add"]), *KNFT, *arguments]
    done = kube_proxy_node.run(command, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith(verdict)
    assert "legacy" not in done.stdout
