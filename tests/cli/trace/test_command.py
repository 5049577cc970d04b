"""``knft trace`` as a command: output formats, the JSON schema, and invalid flags."""

import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

import knft.interpret.trace as form
from knft.cli.trace_text import format_trace
from knft.errors import KnftError
from tests.support.json_schema import schema_of
from tests.support.traced_cluster import FLAGS, invoke_trace, trace, write_manifests

SCHEMA = Path(form.__file__).with_name("trace.schema.json")
GOLDEN = Path(__file__).parent / "golden"
WIDTHS: dict[str, int | None] = {"80": 80, "200": 200, "piped": None}
PACKET = ("--from", "192.0.2.99", "--to", "10.96.0.10:80/tcp")
INTERFACES = ("--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "veth")
TRACES = {
    "endpoints": (*FLAGS, *PACKET, "--backend", "iptables"),
    "node-port": (*FLAGS, "--from", "198.51.100.7", "--to", "192.0.2.11:30010"),
    "rejected": (*FLAGS, "--from", "192.0.2.99", "--to", "10.96.0.13:80"),
    "cases": (*FLAGS, *PACKET, *INTERFACES),
    "warning": ("--node", "node-1", *PACKET),
    "undecided": ("--node", "node-2", *FLAGS[2:], "--from", "198.51.100.7", "--to", "192.0.2.12:30010"),
}
"""The flags of each golden file; node-2 has no Node object, so its addresses are unknown."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_manifests(tmp_path_factory.mktemp("trace"))


def test_text_shows_each_rule_and_its_action(cluster: Path) -> None:
    """It shows the rules before the choice of an endpoint, those of each endpoint, and those after it."""
    done = invoke_trace("-f", str(cluster), *FLAGS, *PACKET)
    rule = "ip daddr . meta l4proto . th dport vmap @service-ips"
    assert f"\n  ip knft services: go to ip knft pool-tcp-2   [{rule}]\n" in done.stdout
    assert "\n1/2 (50 %) reaches 10.244.1.11:8080, masqueraded: from outside the pod range\n" in done.stdout
    assert "\n      ip knft pool-tcp-2: to 10.244.1.11:8080   [dnat ip to " in done.stdout
    assert "\npacket   192.0.2.99 → 10.96.0.10:80/tcp (IPv4, from another host or a pod)" in done.stdout
    assert "\nservice  shop/open:http\n" in done.stdout


def golden_texts(cluster: Path) -> dict[str, str]:
    """Return the text of each golden file."""
    traces = {name: invoke_trace("-f", str(cluster), *flags, "-o", "json").stdout for name, flags in TRACES.items()}
    return {
        f"{name}-{width}": format_trace(msgspec.json.decode(found, type=form.Trace), width=limit)
        for name, found in traces.items()
        for width, limit in WIDTHS.items()
    }


def test_text_is_golden(cluster: Path) -> None:
    """``python -m tests.cli.trace.write_golden`` writes the files, to be reviewed."""
    texts = golden_texts(cluster)
    assert {path.stem: path.read_text() for path in GOLDEN.iterdir()} == texts
    assert all(len(line) <= 80 for name, text in texts.items() if "-80" in name for line in text.splitlines())


@pytest.mark.parametrize(
    ("flags", "conclusion"),
    [
        (("--to", "10.96.0.10:80"), "the packet reaches one of 2 endpoints"),
        (("--to", "192.0.2.11:30016"), "the packet reaches 10.244.1.16:8080, source kept"),
        (("--to", "10.96.0.13:80"), "the packet is rejected: no endpoints"),
        (("--to", "198.51.100.77:80"), "the packet is delivered, not translated"),
        (
            ("--to", "10.96.0.11:80", *INTERFACES),
            "the outcome depends on properties of the packet that no flag gives: 2 cases",
        ),
    ],
)
def test_conclusion_comes_first(cluster: Path, flags: tuple[str, ...], conclusion: str) -> None:
    found = invoke_trace("-f", str(cluster), *FLAGS, "--from", "192.0.2.99", *flags).stdout
    assert found.startswith(f"{conclusion}\n\npacket   ")


@pytest.mark.parametrize("backend", ["nftables", "iptables"])
@pytest.mark.parametrize(
    ("source", "to", "has_note"),
    [
        ("192.0.2.99", "10.96.0.10:80", True),  # masqueraded if the source is outside of the range of pods
        ("192.0.2.11", "10.96.0.10:80", True),  # the node's own packets too
        ("192.0.2.99", "192.0.2.11:30011", True),  # policy Local does not apply to pods
        ("192.0.2.11", "192.0.2.11:30011", False),  # nor to the node
        ("192.0.2.99", "192.0.2.11:30010", False),  # policy Cluster masquerades all packets
        ("192.0.2.99", "203.0.113.5:80", False),  # not in loadBalancerSourceRanges
        ("192.0.2.99", "198.51.100.77:80", False),
    ],
)
def test_missing_cluster_cidr_is_a_warning_if_the_outcome_depends_on_it(
    cluster: Path, backend: str, source: str, to: str, *, has_note: bool
) -> None:
    packet = ("--from", source, "--to", to)
    found = trace("-f", str(cluster), "--node", "node-1", "--backend", backend, *packet)
    notes = [text for text in found["remarks"] if text.startswith("no --cluster-cidr: packets from pods count as")]
    assert len(notes) == has_note
    assert not trace("-f", str(cluster), *FLAGS, "--backend", backend, *packet)["remarks"]


def test_conclusion_of_endpoints_and_a_rejection(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_text(
        "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
        "-A PREROUTING -p tcp -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.1:80\n"
        "COMMIT\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
        "-A FORWARD -d 10.96.0.10 -j REJECT\nCOMMIT\n"
    )
    flags = ("--iptables-save", str(saved), *PACKET, "--local-address", "192.0.2.11")
    assert invoke_trace(*flags).stdout.startswith("the packet reaches 10.0.0.1:80 or is rejected: ")


def test_probabilities_of_kube_proxys_rules_are_shown(cluster: Path) -> None:
    (path,) = trace("-f", str(cluster), *FLAGS, *PACKET, "--backend", "iptables")["ways"]
    first, second = (end["rules"][0]["does"] for end in path["ends"])
    assert first[0] == "chance 1/2"
    assert second[0].startswith("jump to nat KUBE-SEP-")
    assert [rule["does"] for rule in path["then"]][-1] == ["masquerade"]


@pytest.mark.parametrize("mode", ["nftables", "iptables", "ipvs"])
@pytest.mark.parametrize("to", ["10.96.0.10:80", "10.96.0.13:80", "10.96.0.15:80", "198.51.100.77:80/udp"])
def test_json_output_matches_the_schema(cluster: Path, mode: str, to: str) -> None:
    found = trace("-f", str(cluster), *FLAGS, "--backend", mode, "--from", "192.0.2.99", "--to", to)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))


def test_schema_is_current() -> None:
    """``python -m tests.cli.trace.write_golden`` updates it."""
    assert json.loads(SCHEMA.read_text()) == schema_of(form.Trace)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "10.96.0.10"], "--to: '10.96.0.10' is not an address with a port, such as 10.96.0.10:80/tcp"),
        (["--to", "fd00::10:80"], "write an IPv6 address in brackets"),
        (["--to", "10.96.0.10:http"], "--to: 'http' is not a port"),
        (["--to", "10.96.0.10:0"], "--to: '0' is not a port"),
        (["--to", "10.96.0.10:70000"], "--to: '70000' is not a port"),
        (["--to", "10.96.0.10:80/icmp"], "--to: 'icmp' is not a protocol of Services"),
        (["--to", "10.96.0.300:80"], "--to: '10.96.0.300' is not an IP address"),
        (["--to", "[fd00::10]:80"], "--from: 192.0.2.99 is an IPv4 address, and --to has one of IPv6"),
        (["--from", "224.0.0.1"], "--from: 224.0.0.1 is not a unicast address"),
        (["--from", "255.255.255.255"], "--from: 255.255.255.255 is not a unicast"),
        (["--to", "[fd00::10]:80", "--from", "::"], "--from: :: is not a unicast"),
        (["--from", "web"], "--from: 'web' is not an IP address"),
        (["--from", "192.0.2.11", "--in-interface", "eth0"], "the node's own packets have no input interface"),
        (["--in-interface", "a/b"], "--in-interface: 'a/b' is not the name of an interface"),
        (["--to", "127.0.0.1:80"], "the kernel accepts packets to a loopback address only from the node"),
        (["--remembered", "10.244.1.11:8080"], "--remembered: the rules have no session affinity for endpoint"),
        (["--remembered", "10.244.1.11"], "--remembered: '10.244.1.11' is not an address with a port"),
        (["--nft-json", "/dev/null"], "-f cannot be used with captured rules"),
    ],
)
def test_invalid_flags_are_errors(cluster: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(KnftError) as raised:
        invoke_trace("-f", str(cluster), *FLAGS, *PACKET, *arguments)
    assert message in str(raised.value)


def test_flags_of_rendered_rules_need_manifests() -> None:
    with pytest.raises(KnftError, match="--masquerade-all requires -f"):
        invoke_trace(*PACKET, "--masquerade-all")
    with pytest.raises(KnftError, match="--backend requires -f"):
        invoke_trace(*PACKET, "--iptables-save", "/dev/null", "--backend", "ipvs")


def test_configuration_file_has_the_settings(cluster: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.conf"
    config.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        "clusterCIDR: 10.244.0.0/16\niptables: {masqueradeAll: true}\n"
    )
    node, file = ("--node", "node-1", "--service-cidr", "10.96.0.0/16"), ("--config", str(config))
    packet = ("--from", "10.244.1.11", "--to", "10.96.0.10:80")
    flags = ("--cluster-cidr", "10.244.0.0/16", "--masquerade-all")
    assert trace("-f", str(cluster), *node, *file, *packet) == trace("-f", str(cluster), *node, *flags, *packet)
    dropped = trace("-f", str(cluster), *node, *file, "--drop-invalid-packets", *packet, "--state", "invalid")
    assert dropped["ways"][0]["ends"][0]["fate"] == "dropped"
    for more, message in (
        ("--masquerade-all", "--masquerade-all cannot be used with --config; set the field in it"),
        ("--backend=ipvs", "--config cannot be used with --backend ipvs: it has knft's settings only"),
        ("--config=/nothing", "/nothing: No such file or directory"),
    ):
        with pytest.raises(KnftError, match=re.escape(message)):
            invoke_trace("-f", str(cluster), *node, *file, *packet, more)
    with pytest.raises(KnftError, match="--config requires -f"):
        invoke_trace(*file, *packet)


def test_uninterpreted_rule_gives_no_outcome(tmp_path: Path) -> None:
    """The output names the rule, with control characters escaped."""
    saved = tmp_path / "saved"
    saved.write_text(
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
        '-A FORWARD -m comment --comment "red \x1b[31m" -m bpf --bytecode "1,6 0 0 0" -j DROP\nCOMMIT\n'
    )
    done = invoke_trace("--iptables-save", str(saved), *PACKET, "--local-address", "192.0.2.11")
    assert done.exit_code == 0
    assert "the outcome is undecided: a rule of filter FORWARD (line 5) is not interpreted: -A FORWARD" in done.stdout
    assert "\x1b" not in done.stdout


def test_chain_policy_is_the_reason_if_no_rule_accepts(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_text("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n")
    found = trace("--iptables-save", str(saved), *PACKET)
    assert found["ways"][0]["ends"][0]["why"] == "no rule of the chain accepts the packet, and its policy is drop"
    assert found["remarks"] == ["no address of the node is known; name its addresses with --local-address"]


NODE_PORT = (
    "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n"
    "-A PREROUTING -j KUBE-SERVICES\n"
    '-A KUBE-SERVICES -m addrtype --dst-type LOCAL -p tcp -m comment --comment "a/b:c" -m tcp --dport 30080 '
    "-j DNAT --to-destination 10.244.1.11:8080\nCOMMIT\n"
)


def test_node_port_without_addresses_of_the_node_is_undecided(tmp_path: Path) -> None:
    """It is no wrong "not translated" with status 0; other packets do not depend on the addresses."""
    saved = tmp_path / "saved"
    saved.write_text(NODE_PORT)
    flags = ("--iptables-save", str(saved), "--from", "198.51.100.7", "--to")
    done = invoke_trace(*flags, "192.0.2.11:30080")
    assert done.exit_code == 3
    assert "the outcome is undecided: the node's addresses are unknown, and if 192.0.2.11 is one of them" in done.stdout
    assert "--local-address" in done.stdout
    assert "not translated" not in done.stdout
    known = invoke_trace(*flags, "192.0.2.11:30080", "--local-address", "192.0.2.11")
    assert (known.exit_code, "reaches 10.244.1.11:8080" in known.stdout) == (0, True)
    assert invoke_trace(*flags, "192.0.2.11:30081").exit_code == 0


def test_node_port_in_manifests_without_a_node_is_undecided(cluster: Path, tmp_path: Path) -> None:
    objects = [item for item in yaml.safe_load_all(cluster.read_text()) if item["kind"] != "Node"]
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    for mode in ("nftables", "iptables"):
        flags = ("-f", str(tmp_path / "objects.yaml"), *FLAGS, "--backend", mode)
        assert invoke_trace(*flags, "--from", "198.51.100.7", "--to", "192.0.2.11:30010").exit_code == 3
        assert invoke_trace(*flags, "--from", "198.51.100.7", "--to", "10.96.0.10:80").exit_code == 0


def test_capture_of_the_other_family_is_an_error(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_text("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n")
    with pytest.raises(KnftError, match="no IPv4 rules, but --to is an IPv4 address"):
        invoke_trace("--ip6tables-save", str(saved), *PACKET)
