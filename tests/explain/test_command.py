"""``knft explain`` as a command: exit statuses, formats, widths, and explanations of the Services in ``shop.py``."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import knft.explain.explanation as form
from knft.cli.explain_text import format_explanation
from knft.cli.manifests import read_manifests
from knft.comparison.explained import object_source
from knft.comparison.live import LiveKnft
from knft.comparison.rendered import knft_rules
from knft.config import Config
from knft.errors import CaptureError, KnftError
from knft.explain.affinity import Client, with_affinity
from knft.explain.connections import ConnectionCount, with_connections
from knft.explain.sentences import Sentence
from knft.explain.sources import ObjectSource
from knft.families import Family
from knft.model.plan import FrontendKey
from tests.support.explain_sources import CONFIG, served
from tests.support.json_schema import schema_of
from tests.support.knft_command import KNFT
from tests.support.knft_command import write_manifests as write_objects
from tests.support.lint_objects import endpoint, endpoint_slice, node, node_port
from tests.support.memory_daemon import MemoryDaemon
from tests.support.running_shop import explain_running_shop
from tests.support.shop import FLAGS, explain_in, invoke, source, write_manifests
from tests.support.used_endpoints import check_used_endpoints

SCHEMA = Path(form.__file__).with_name("explanation.schema.json")
GOLDEN = Path(__file__).parent / "golden"
WIDTHS: dict[str, int | None] = {"80": 80, "200": 200, "piped": None}
QUESTIONS = {
    "frontend": "shop/frontend",
    "node-port": ":30080/tcp",
    "rival": "shop/rival",
    "endpoint": "10.244.2.11",
    "unallocated": "10.96.9.9:80/tcp",
    "unknown": "shop/front-end",
    "entries": "shop/frontend",
    "not-in-force": "shop/frontend",
}
"""The question of each golden file.

That of "entries" is asked with --client and --connections, that of "not-in-force" of a running knft that is behind.
"""
CLIENT = Client(Family.IPV4, "198.51.100.7")


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_manifests(tmp_path_factory.mktemp("explain"))


@pytest.fixture(scope="module")
def shop(manifests: Path) -> ObjectSource:
    return source(manifests)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("width", WIDTHS)
def test_text_is_golden(shop: ObjectSource, name: str, width: str) -> None:
    """``python -m tests.explain.write_golden`` writes the files, to be reviewed."""
    text = golden_text(shop, name, width)
    assert (GOLDEN / f"{name}-{width}.txt").read_text() == text
    limit = WIDTHS[width]
    assert limit is None or max(map(len, text.splitlines())) <= limit


def golden_text(shop: ObjectSource, name: str, width: str) -> str:
    """Return the text of an explanation."""
    found = explain_running_shop(QUESTIONS[name]) if name == "not-in-force" else explain_in(shop, QUESTIONS[name])
    if name == "entries":
        found = with_connections(with_affinity(found, lambda: shop.probes, _Entries(), CLIENT), _connections)
    return format_explanation(found, WIDTHS[width])


class _Entries:
    """Affinity entries: 100 000 of IPv4, which are not all, on the first endpoint, with the client; one of IPv6."""

    def count(self, family: Family, ids: frozenset[int]) -> tuple[dict[int, int], bool]:
        is_ipv4 = family is Family.IPV4
        return {min(ids): 100_000 if is_ipv4 else 1}, not is_ipv4

    def seconds(self, family: Family, ids: frozenset[int], client: str) -> dict[int, int]:
        assert (family, client) == (CLIENT.family, CLIENT.address)
        return {min(ids): 600}


def _connections(family: Family, keys: frozenset[FrontendKey]) -> Iterator[ConnectionCount]:
    """Yield 12 345 connections to each frontend and endpoint of IPv4, also to one that is not ready any more."""
    for key in keys if family is Family.IPV4 else ():
        yield ConnectionCount(key, "10.244.1.11:8080", 12_345)
        yield ConnectionCount(key, "10.244.2.12:8080", 1)


def test_golden_files_are_those_of_the_questions() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {f"{name}-{width}" for name in QUESTIONS for width in WIDTHS}


@pytest.mark.parametrize("columns", [80, 500])
def test_terminal_has_its_width_up_to_200(manifests: Path, shop: ObjectSource, columns: int) -> None:
    command = [*KNFT, "explain", "shop/frontend", "-f", str(manifests), *FLAGS]
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment["PYTHONHASHSEED"] = str(columns)  # The output must not depend on the order of sets.
    environment["NO_COLOR"] = "1"
    with subprocess.Popen(command, stdout=terminal, env=environment) as process:
        os.close(terminal)
        printed = b"".join(iter(lambda: _read(master), b""))
        assert process.wait() == 0
    os.close(master)
    assert printed.decode().replace("\r\n", "\n") == golden_text(shop, "frontend", str(min(columns, 200)))


@pytest.mark.parametrize(
    ("node", "warning"),
    [("node-7", "--node: there is no Node 'node-7'; the Nodes are node-1"), ("node-1", None)],
)
def test_wrong_name_of_the_node_is_a_warning(manifests: Path, node: str, warning: str | None) -> None:
    """Policy Local would exclude all endpoints."""
    done = invoke("shop/frontend", "-f", str(manifests), *FLAGS, "--node", node, "-o", "json")
    assert json.loads(done.stdout)["warnings"] == ([] if warning is None else [warning])


def test_pods_that_rules_do_not_know_are_like_other_hosts(manifests: Path) -> None:
    found = object_source(read_manifests((str(manifests),), described=True), Config("node-1"))
    (port, _) = explain_in(found, "shop/frontend").ports
    traffic = {use.traffic for endpoint in port.endpoints for use in endpoint.uses}
    assert "external frontends from any host" in traffic
    for frontend in port.frontends:
        assert {outcome.client for outcome in frontend.outcomes} == {"any", "node"}
        check_used_endpoints(port, frontend)


@pytest.mark.parametrize(
    ("what", "flags", "has_note"),
    [
        ("shop/frontend", (), True),
        ("shop/frontend", ("--cluster-cidr", "10.244.0.0/16"), False),
        ("shop/frontend", ("--detect-local-mode", "NodeCIDR"), False),
        ("shop/rival", (), False),
        ("10.96.9.9:80/tcp", (), False),
        ("shop/unknown", (), False),
    ],
)
def test_missing_cluster_cidr_is_a_warning_if_outcomes_depend_on_it(
    manifests: Path, what: str, flags: tuple[str, ...], *, has_note: bool
) -> None:
    done = invoke(what, "-f", str(manifests), "--node", "node-1", *flags, "-o", "json")
    notes = [text for text in json.loads(done.stdout)["warnings"] if text.startswith("no --cluster-cidr: packets from")]
    assert len(notes) == has_note


def test_missing_cluster_cidr_is_a_warning_if_only_the_outcome_at_a_node_port_depends_on_it(tmp_path: Path) -> None:
    """With policy Local, pods are sent to the endpoint on the other node, and other clients are not."""
    found = node_port(externalTrafficPolicy="Local")
    write_objects(tmp_path, (found, endpoint_slice(endpoint(2)), node(1)))
    flags = ("-f", str(tmp_path), "--node", "node-1", "--masquerade-all", "--nodeport-addresses", "all")
    (warning,) = json.loads(invoke("shop/web", *flags, "-o", "json").stdout)["warnings"]
    assert warning.startswith("no --cluster-cidr: packets from")


def test_missing_cluster_cidr_is_a_warning_beside_the_kernel_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_objects(tmp_path, (node_port(), endpoint_slice(), node(1)))
    rules = knft_rules(read_manifests((str(tmp_path),)), Config("node-1"))
    monkeypatch.setattr("knft.comparison.live.read_live_knft", lambda: LiveKnft(rules, frozenset()))
    found = json.loads(invoke("shop/web", "-f", str(tmp_path), "--node", "node-1", "--live", "-o", "json").stdout)
    assert [each["kind"] for each in found["kernel"]] == [Sentence.KERNEL_EQUAL.kind]
    (warning,) = found["warnings"]
    assert warning.startswith("no --cluster-cidr: packets from")


def test_kernel_that_cannot_be_read_is_an_error_if_a_client_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the running knft's explanation has no word about the client."""
    daemon = MemoryDaemon(CONFIG)
    daemon.add(*served("web", "10.96.0.10"))

    def fail() -> LiveKnft:
        msg = "cannot be read"
        raise CaptureError(msg)

    monkeypatch.setattr("knft.comparison.live.read_live_knft", fail)
    monkeypatch.setattr("knft.control.object_reader.ObjectReader", lambda: daemon.reader)
    assert "the kernel's rules were not compared: cannot be read" in invoke("web").stdout
    with pytest.raises(CaptureError, match="cannot be read"):
        invoke("web", "--client", CLIENT.address)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # The last process that had the terminal open has ended.
        return b""


@pytest.mark.parametrize(
    ("what", "status", "line"),
    [
        ("shop/frontend", 0, "2 of 4 IPv4 endpoints of shop/frontend:http get connections; 2 of 2 IPv6 "),
        (":30080", 0, ":30080/tcp is a NodePort of Service port shop/frontend:http; "),
        ("10.244.2.12", 0, "10.244.2.12 is an endpoint of shop/frontend:http; not used: not ready"),
        (
            "shop/rival:admin",
            0,
            "no IPv4 EndpointSlice of Service shop/rival has port 'admin' (TCP), only 'web' ",
        ),
        ("10.96.9.9", 3, "no Service has 10.96.9.9; 10.96.0.0/16 is a Service CIDR, so packets to it are dropped"),
        ("10.96.0.10:80/udp", 3, "10.96.0.10 is a cluster IP of shop/frontend, which has port 80 for tcp only, so "),
        ("frontend", 3, "there is no Service default/frontend; did you mean shop/frontend?"),
        ("shop/zebra", 3, "there is no Service shop/zebra\n"),
    ],
)
def test_first_line_is_the_conclusion(manifests: Path, what: str, status: int, line: str) -> None:
    done = invoke(what, "-f", str(manifests), *FLAGS)
    assert done.exit_code == status
    assert done.stdout.startswith(line)


@pytest.mark.parametrize("name", QUESTIONS)
def test_json_output_matches_the_schema(manifests: Path, name: str) -> None:
    done = invoke(QUESTIONS[name], "-f", str(manifests), *FLAGS, "-o", "json")
    found = json.loads(done.stdout)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    kinds = {each.kind for each in Sentence}
    assert {statement["kind"] for statement in found["conclusion"]} <= kinds


def test_schema_is_current() -> None:
    """``python -m tests.explain.write_golden`` updates it."""
    assert json.loads(SCHEMA.read_text()) == schema_of(form.Explanation)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["10.96.0.300"], "WHAT: '10.96.0.300' is not an IP address"),
        (["web", "--local-address", "x"], "--local-address"),
        (["web", "--node", " "], "--node: the name is empty"),
        (["web", "-f", "/nonexistent"], "/nonexistent: No such file or directory"),
        (["web", "--live", "--client", "x"], "--client: 'x' is not an IP address"),
        (["web", "--client", "192.0.2.7"], "--client: affinity entries are in this machine's kernel; add --live"),
        (["web", "--connections"], "--connections: conntrack entries are in this machine's kernel; add --live"),
    ],
)
def test_bad_input_is_an_error(manifests: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(KnftError) as raised:
        invoke("-f", str(manifests), *FLAGS, *arguments)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--masquerade-all"], "--masquerade-all requires -f"),
        (["--node", "node-1"], "--node requires -f"),
        (
            ["--no-live", "--client", "192.0.2.7"],
            "--client: affinity entries are in this machine's kernel; leave out --no-live",
        ),
        (
            ["--local-address", "192.0.2.11"],
            "--local-address requires -f or --source kernel: the running knft knows the node's addresses",
        ),
        (
            ["--source", "kernel", "--live"],
            "--live cannot be used with --source kernel: the kernel's rules are the source",
        ),
    ],
)
def test_flags_of_another_source_are_errors(arguments: list[str], message: str) -> None:
    with pytest.raises(KnftError) as raised:
        invoke("web", *arguments)
    assert str(raised.value) == message


OTHER_NODES = (
    "without --node, this is explained for the first of {} nodes; traffic policy Local, topology hints and NodePorts "
    "may have other results on the others"
)


def test_first_node_is_the_default(manifests: Path, tmp_path: Path) -> None:
    """That of the Node objects, which come before nodes that only endpoints name."""
    done = json.loads(invoke("shop/frontend", "-f", str(manifests), *FLAGS[2:], "-o", "json").stdout)
    assert (done["node"], done["zone"], done["warnings"]) == ("node-1", "zone-a", [OTHER_NODES.format(2)])
    path = tmp_path / "objects.yaml"
    path.write_text(manifests.read_text().replace("name: node-1", "name: node-9"))
    done = json.loads(invoke("shop/frontend", "-f", str(path), *FLAGS[2:], "-o", "json").stdout)
    assert (done["node"], done["warnings"]) == ("node-9", [OTHER_NODES.format(3)])
    path.write_text(manifests.read_text().replace("node-2", "node-1"))
    done = json.loads(invoke("shop/frontend", "-f", str(path), *FLAGS[2:], "-o", "json").stdout)
    assert (done["node"], done["warnings"]) == ("node-1", [])
    for flag in ("--node-ip", "--local-address"):
        with pytest.raises(KnftError, match="require --node: the addresses of all nodes cannot be the same"):
            invoke("shop/frontend", "-f", str(tmp_path), *FLAGS[2:], flag, "192.0.2.1")
    path.write_text("apiVersion: v1\nkind: List\nitems: []\n")
    for more in ((), ("--live",)):
        with pytest.raises(KnftError, match="--node is required with -f: give the node's name as in nodeName"):
            invoke("shop/frontend", "-f", str(tmp_path), *more)


def test_manifests_are_the_only_source(manifests: Path) -> None:
    with pytest.raises(KnftError, match="--source cannot be used with -f: the manifests are the source"):
        invoke("web", "-f", str(manifests), *FLAGS, "--source", "daemon")


def test_names_of_pods_and_zones_cannot_control_the_terminal(tmp_path: Path) -> None:
    """The API server validates them; a file may have anything there."""
    path = write_manifests(tmp_path)
    path.write_text(path.read_text().replace("frontend-7d4b9c6f5-11abc", '"\\e[31m"'))
    done = invoke("shop/frontend", "-f", str(path), *FLAGS)
    assert "\x1b" not in done.stdout
    assert "\\x1b[31m" in done.stdout


def test_wrong_pods_and_zones_are_ignored(tmp_path: Path) -> None:
    """As the daemon ignores them, whatever their type is."""
    path = write_manifests(tmp_path)
    path.write_text(
        path.read_text().replace("zone: zone-b", "zone: [1]").replace("name: frontend-7d4b9c6f5-11abc", "name: 7")
    )
    done = invoke("shop/frontend", "-f", str(path), *FLAGS)
    assert done.stdout.startswith("2 of 4 IPv4 endpoints of shop/frontend:http get connections")
    assert "zone-b" not in done.stdout
