"""NodePorts on loopback addresses, served by ``knft run``: clients on the node reach the pods."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from knft.explain.sentences import Sentence
from knft.families import Family
from tests.support.families import address, in_both
from tests.support.knft_command import KNFT, NODE_FLAG, knft, remove_tables, write_manifests
from tests.support.lab.outcomes import Answered, Rejected
from tests.support.lab.plan import Version
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import OpenConnection, dial, dial_many
from tests.support.logged_process import LoggedProcess
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.processes import is_running
from tests.support.scenario import VERSIONS, Scenario
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.kernel

NODE_PORT, OTHER_NODE_PORT, PORT = 30080, 30081, 8080
WEB = service("web", 90, *tcp_and_udp("http", 80, NODE_PORT))
GATE = "--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true"
LOCALHOST = (GATE, "--nodeport-addresses", "localhost")
each_family = pytest.mark.parametrize("version", VERSIONS)


class LoopbackNode:
    """``knft run`` on the node, with the manifests of one directory, and servers on pods."""

    def __init__(self, lab: Lab, folder: Path, servers: Responders) -> None:
        self.lab, self.node, self._folder = lab, lab.host("node"), folder
        self._manifests = folder / "manifests"
        self._manifests.mkdir()
        self._starts = 0
        self._flags: tuple[str, ...] | None = None
        for pod in ("local-1", "remote-1", "remote-2"):
            servers.serve(lab.host(pod), PORT)

    def apply(self, *objects: dict[str, Any]) -> None:
        write_manifests(self._folder, Scenario("", list(objects), ()).manifests())
        (self._folder / "objects.yaml").rename(self._manifests / "objects.yaml")

    def start(self, *flags: str) -> None:
        """Start knft, and return when both families are synced."""
        self._starts += 1
        self._flags = flags
        arguments = ["run", "--manifests", str(self._manifests), *NODE_FLAG, "--min-sync-period", "0", "-v2", *flags]
        log = self._folder / f"log-{self._starts}"
        self.run = LoggedProcess(self.node.namespace, [*KNFT, *arguments], log)
        self.run.wait_until(lambda: self.run.log_text().count("full sync") >= 2)

    def serve_web(self) -> None:
        """Restore what each test begins with: Service ``web``, served at loopback addresses only.

        So every answer is the forwarder's. A process with these flags is used again.
        """
        self.apply(WEB, endpoints("web", "remote-1", http=PORT))
        if self._flags != LOCALHOST or self.run.process.poll() is not None:
            self.stop()
            self.start(*LOCALHOST)
        self.wait_for(lambda: all(self.server_at(version) == "remote-1" for version in VERSIONS))

    def stop(self) -> None:
        """Kill knft, if it was started, and remove its tables."""
        if self._flags is not None:
            self.kill()
        remove_tables(self.node.namespace)

    def kill(self) -> None:
        self.run.process.kill()
        self.run.process.communicate()

    def server_at(self, version: Version, port: int = NODE_PORT) -> str:
        """Return the server that answers a process of the node at the loopback address, "" if none does."""
        outcome = dial(self.node, address("loopback", version), port)
        return outcome.server if isinstance(outcome, Answered) else ""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        self.run.wait_until(condition)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(knft(self.node.namespace, "status", "-o", "json", check=False).stdout)["families"])


@pytest.fixture(scope="module")
def only_node(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackNode]:
    """The node of all tests: in the virtual machine, a new process of knft takes half a minute to serve."""
    with Responders() as servers:
        created = LoopbackNode(lab, tmp_path_factory.mktemp("loopback"), servers)
        # Tests of kube-proxy's mode iptables in the same lab set it.
        created.node.namespace.sysctl("net.ipv4.conf.all.route_localnet", 0)
        try:
            yield created
        finally:
            created.stop()


@pytest.fixture
def node(only_node: LoopbackNode) -> LoopbackNode:
    """The node, where both loopback addresses serve pod ``remote-1``."""
    only_node.serve_web()
    return only_node


@each_family
def test_process_of_the_node_reaches_the_pod_with_the_nodes_address(node: LoopbackNode, version: Version) -> None:
    outcome = dial(node.node, address("loopback", version), NODE_PORT)
    assert isinstance(outcome, Answered)
    assert (outcome.address, outcome.source) == (node.lab.host("remote-1").address(version), node.node.address(version))


@each_family
def test_other_addresses_of_the_node_do_not_accept_the_nodeport(node: LoopbackNode, version: Version) -> None:
    """Nothing listens there: only the loopback addresses are bound, and no sysctl is changed."""
    for client in ("node", "outside", "local-2"):
        outcome = dial(node.lab.host(client), node.node.address(version), NODE_PORT)
        assert outcome == Rejected("reset")
    with node.node.namespace.entered():
        table = Path(f"/proc/thread-self/net/tcp{'6' if version == 6 else ''}").read_text(encoding="ascii")
        # The kernel combines the value of "all" with that of the interface.
        route_localnet = [path.read_text() for path in Path("/proc/sys/net/ipv4/conf").glob("*/route_localnet")]
    listening = [line.split()[1] for line in table.splitlines()[1:] if line.split()[3] == "0A"]
    loopback = "0100007F" if version == 4 else "00000000000000000000000001000000"
    assert [each for each in listening if each.endswith(f":{NODE_PORT:04X}")] == [f"{loopback}:{NODE_PORT:04X}"]
    assert set(route_localnet) == {"0\n"}
    assert len(route_localnet) > len(("all", "default", "lo"))


@each_family
def test_udp_is_rejected_although_a_process_has_the_port(node: LoopbackNode, version: Version) -> None:
    """At every loopback address, and the rules count the packets."""
    before = [_rejected(node, version, protocol) for protocol in ("udp", "sctp")]
    with _bound(node, version, socket.SOCK_DGRAM) as receiver:
        for loopback in ("127.0.0.1", "127.0.0.2") if version == 4 else ("::1",):
            assert dial(node.node, loopback, NODE_PORT, "udp") == Rejected("icmp")
        with pytest.raises(BlockingIOError):
            receiver.recv(1)
    assert _rejected(node, version, "udp") == before[0] + (2 if version == 4 else 1)
    assert _rejected(node, version, "sctp") == before[1]


@each_family
def test_commands_tell_that_udp_is_rejected(node: LoopbackNode, version: Version) -> None:
    assert dial(node.node, address("loopback", version), NODE_PORT, "udp") == Rejected("icmp")
    where = _where(version)
    (conclusion,) = _explained(node, f"{where}/udp")["conclusion"]
    assert conclusion["kind"] == Sentence.NODE_PORT_REJECTED_ON_LOOPBACK.kind
    assert conclusion["text"] == (
        f"{where}/udp is the NodePort of default/web:http-udp, which is not served at loopback addresses: packets are "
        "rejected"
    )
    assert _traced(node, version, "udp") == ["rejected"]


@each_family
def test_sctp_is_rejected(node: LoopbackNode, version: Version) -> None:
    sctp_port = {"name": "ctl", "port": 90, "nodePort": 30090, "protocol": "SCTP"}
    node.apply(WEB, endpoints("web", "remote-1", http=PORT), service("ctl", 91, sctp_port))
    node.wait_for(lambda: "30090" in node.node.namespace.run(["nft", "list", "ruleset"]).stdout)
    before = _rejected(node, version, "sctp")
    assert dial(node.node, address("loopback", version), 30090, "sctp") == Rejected("icmp")
    assert _rejected(node, version, "sctp") == before + 1
    node.apply(WEB, endpoints("web", "remote-1", http=PORT))
    node.wait_for(lambda: "30090" not in node.node.namespace.run(["nft", "list", "ruleset"]).stdout)


@each_family
def test_tcp_is_rejected_if_no_loopback_address_accepts_nodeports(node: LoopbackNode, version: Version) -> None:
    """As in kube-proxy with the gate, also if a process of the node has the port."""
    node.kill()
    node.start(GATE, "--nodeport-addresses", "primary")
    with _bound(node, version, socket.SOCK_STREAM) as listener:
        listener.listen()
        assert dial(node.node, address("loopback", version), NODE_PORT) == Rejected("icmp")
        assert dial(node.node, address("loopback", version), OTHER_NODE_PORT) == Rejected("reset")
    assert _rejected(node, version, "tcp") == 1
    assert _traced(node, version, "tcp") == ["rejected"]
    assert _forwarders(node) == []


def _bound(node: LoopbackNode, version: Version, kind: socket.SocketKind) -> socket.socket:
    """Return a socket of another process of the node at all addresses and the NodePort."""
    with node.node.namespace.entered():
        other = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, kind)
    other.settimeout(0)
    other.bind(("", NODE_PORT))
    return other


def _rejected(node: LoopbackNode, version: Version, protocol: str) -> int:
    """Return how many packets the rules have rejected."""
    family, chain = "ip" if version == 4 else "ip6", f"localhost-nodeport-reject-{protocol}"
    listed = json.loads(node.node.namespace.run(["nft", "-j", "list", "chain", family, "knft", chain]).stdout)
    (rule,) = (each["rule"] for each in listed["nftables"] if "rule" in each)
    return int(rule["expr"][0]["counter"]["packets"])


def _where(version: Version) -> str:
    return f"{'127.0.0.1' if version == 4 else '[::1]'}:{NODE_PORT}"


def _explained(node: LoopbackNode, what: str) -> dict[str, Any]:
    return dict(json.loads(knft(node.node.namespace, "explain", what, "-o", "json").stdout))


def _traced(node: LoopbackNode, version: Version, protocol: str) -> list[str]:
    """Return the fates of packets of the node to the NodePort at the loopback address, as ``knft trace`` tells them."""
    flags = ("--from", address("loopback", version), "--to", f"{_where(version)}/{protocol}", "-o", "json")
    (way,) = json.loads(knft(node.node.namespace, "trace", *flags).stdout)["ways"]
    return [end["fate"] for end in way["ends"]]


@each_family
def test_changes_of_endpoints_and_services_are_followed(node: LoopbackNode, version: Version) -> None:
    node.apply(WEB, endpoints("web", "remote-2", http=PORT))
    node.wait_for(lambda: node.server_at(version) == "remote-2")
    node.apply(WEB, endpoints("web", "local-1", "remote-2", http=PORT))
    node.wait_for(lambda: node.server_at(version) == "local-1")
    found = dial_many(node.node, address("loopback", version), NODE_PORT, "tcp", 100)
    assert found.keys() == {"local-1", "remote-2"}
    policy = {"externalTrafficPolicy": "Local"}
    local_only = service("web", 90, *tcp_and_udp("http", 80, OTHER_NODE_PORT), **policy)
    node.apply(local_only, endpoints("web", "local-1", "remote-2", http=PORT))
    node.wait_for(lambda: node.server_at(version, OTHER_NODE_PORT) == "local-1")
    assert dial(node.node, address("loopback", version), NODE_PORT) == Rejected("reset")
    found = dial_many(node.node, address("loopback", version), OTHER_NODE_PORT, "tcp", 20)
    assert found == {"local-1": 20}
    node.apply()
    node.wait_for(lambda: node.server_at(version, OTHER_NODE_PORT) == "")


def test_without_the_gate_no_process_and_no_rule_is_left(node: LoopbackNode) -> None:
    assert "localhost" in node.node.namespace.run(["nft", "list", "ruleset"]).stdout
    assert len(_forwarders(node)) == 1
    node.kill()
    node.start("--nodeport-addresses", in_both("$loopback/host"))
    assert "localhost" not in node.node.namespace.run(["nft", "list", "ruleset"]).stdout
    assert _forwarders(node) == []
    assert [node.server_at(version) for version in VERSIONS] == ["", ""]
    assert [family["loopback"] for family in node.status().values()] == [None, None]


def _forwarders(node: LoopbackNode) -> list[int]:
    """Return the processes of knft that forward connections."""
    parent, found = str(node.run.process.pid).encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if b"knft.forwarder.program" in arguments and parent in arguments:
                found.append(int(process.name))
    return found


def test_sigterm_ends_both_processes(node: LoopbackNode) -> None:
    """Also while a connection is open."""
    (forwarder,) = _forwarders(node)
    with node.node.namespace.entered():
        client = socket.create_connection(("127.0.0.1", NODE_PORT))
    with client:
        node.run.process.terminate()
        assert node.run.process.wait(TIMEOUT) == 0
        # The kernel kills it when its parent's thread ends.
        wait_until(lambda: not is_running(forwarder), "the process outlives knft")


def test_restart_serves_again(node: LoopbackNode) -> None:
    """The forwarder ends with knft, also if that is killed, so the next process can open the ports.

    Its connections end with it.
    """
    (forwarder,) = _forwarders(node)
    with OpenConnection(node.node, address("loopback", 4), NODE_PORT) as connection:
        assert connection.send(b"before") == "echo"
        node.kill()
        wait_until(lambda: connection.send(b"after") == "reset", "the connection continues")
    node.start(*LOCALHOST)
    assert not is_running(forwarder)
    node.wait_for(lambda: all(node.server_at(version) == "remote-1" for version in VERSIONS))
    assert "cannot serve" not in node.run.log_text()


@each_family
def test_commands_tell_what_a_client_gets(node: LoopbackNode, version: Version) -> None:
    """``explain`` knows the settings of the running knft; ``trace`` follows the rules, which do not translate."""
    where = _where(version)
    explained = _explained(node, where)
    conclusion = explained["conclusion"][0]
    assert conclusion["kind"] == Sentence.NODE_PORT_ON_LOOPBACK.kind
    assert conclusion["text"].startswith(
        f"{where}/tcp is the NodePort of default/web:http-tcp, which a process of knft serves"
    )
    notes = {note["kind"]: note["text"] for port in explained["ports"] for note in port["notes"]}
    assert notes[Sentence.SERVED_ON_LOOPBACK.kind].startswith(f"a process of knft serves the NodePort at {where}, too")
    assert _traced(node, version, "tcp") == ["delivered"]


def test_status_tells_which_nodeports_are_served(node: LoopbackNode) -> None:
    def loopback() -> list[Any]:
        return [node.status()[family.value]["loopback"] for family in Family]

    served = {"listeners": 1, "failed": {"count": 0, "reasons": {}}, "problem": ""}
    node.wait_for(lambda: loopback() == [served, served])
