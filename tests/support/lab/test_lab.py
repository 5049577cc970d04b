"""The lab behaves as the packet tests assume."""

import gc
import itertools
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.lab.outcomes import Answered, Outcome, Rejected, Silent, Unreachable
from tests.support.lab.plan import NODES, SECOND_OUTSIDE, Version
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Host, Lab
from tests.support.lab.traffic import NO_ANSWER, DialTarget, OpenConnection, dial, dial_at_once, dial_many
from tests.support.lab.transports import PORT, TRANSPORTS, Transport

CLOSED_PORT = 8081
VIRTUAL_PORT = 80
HOSTS = ("node", "remote", "outside", "local-1", "local-2", "remote-1", "remote-2")
pytestmark = pytest.mark.kernel
every_transport = pytest.mark.parametrize("way", TRANSPORTS, ids=str)


def _sender(outcome: Outcome) -> str | None:
    assert isinstance(outcome, Rejected)
    return outcome.sender


@every_transport
@pytest.mark.parametrize(("client", "server"), list(itertools.product(HOSTS, HOSTS)))
def test_every_host_reaches_every_host(
    lab: Lab, responders: Responders, client: str, server: str, way: Transport
) -> None:
    """Without any rules, each host reaches every other one, which sees the client's own address."""
    responders.reset_counts()
    target = lab.host(server)

    outcome = dial(lab.host(client), way.address_of(target), PORT, way.protocol)

    assert isinstance(outcome, Answered)
    assert (outcome.server, outcome.address, outcome.port) == (server, way.address_of(target), PORT)
    assert outcome.source in _addresses(lab.host(client), way)
    assert responders.counts == {server: 1}


def _addresses(host: Host, way: Transport) -> set[str]:
    """Return the addresses of a host; a node has one on the lan and one on the bridge of its pods."""
    gateways = {plan.gateway.of(way.version) for plan in NODES if plan.host == host.name}
    return {way.address_of(host), *gateways}


@every_transport
@pytest.mark.usefixtures("responders")
def test_dial_uses_the_given_source(lab: Lab, way: Transport) -> None:
    """The outside client can use its second address, and one source port repeatedly."""
    source, target = SECOND_OUTSIDE.of(way.version), way.address_of(lab.host("local-1"))
    for _ in range(3):
        outcome = dial(lab.host("outside"), target, PORT, way.protocol, source=source, source_port=5555)

        assert outcome == Answered("local-1", target, PORT, source, 5555)


@every_transport
@pytest.mark.parametrize("client", ["outside", "node", "local-1", "local-2"])
def test_closed_port_rejects(lab: Lab, client: str, way: Transport) -> None:
    """A host without a listener resets TCP and refuses UDP by ICMP."""
    target = way.address_of(lab.host("local-1"))

    outcome = dial(lab.host(client), target, CLOSED_PORT, way.protocol)

    assert outcome == Rejected("reset" if way.protocol == "tcp" else "icmp")
    assert _sender(outcome) == (None if way.protocol == "tcp" else target)


@every_transport
@pytest.mark.parametrize("client", ["outside", "node", "local-1"])
def test_packet_to_a_virtual_address_is_dropped(lab: Lab, client: str, way: Transport) -> None:
    """Without a proxy, a packet to a Service address is dropped without an ICMP error."""
    outcome = dial(lab.host(client), way.virtual, VIRTUAL_PORT, way.protocol, timeout=0.2)

    assert outcome == Silent()


@every_transport
def test_missing_route_is_unreachable(lab: Lab, way: Transport) -> None:
    """An address without a route has another outcome than one that does not answer."""
    target = "198.51.100.1" if way.version == 4 else "2001:db8:ffff::1"

    assert isinstance(dial(lab.host("outside"), target, PORT, way.protocol), Unreachable)


@every_transport
def test_withdrawn_server_is_a_closed_port(lab: Lab, way: Transport) -> None:
    """A server can be added at that port again."""
    pod = lab.host("local-3")
    with Responders() as servers:
        for _ in range(2):
            servers.serve(pod, 9000, way.protocol)
            answered = dial(lab.host("node"), way.address_of(pod), 9000, way.protocol)
            assert isinstance(answered, Answered)
            servers.withdraw(pod, 9000, way.protocol)

        refused = dial(lab.host("node"), way.address_of(pod), 9000, way.protocol)
        many = dial_many(lab.host("node"), way.address_of(pod), 9000, way.protocol, 3)

    assert isinstance(refused, Rejected)
    assert many == {NO_ANSWER: 3}


@every_transport
@pytest.mark.parametrize("where", ["node", "remote"])
def test_pod_is_added_and_removed(lab: Lab, where: str, way: Transport) -> None:
    """A pod that is added later is reachable at once; a removed one does not answer."""
    pod = lab.add_pod(where)
    with Responders() as servers:
        servers.serve(pod, PORT, way.protocol)
        answered = dial(lab.host("outside"), way.address_of(pod), PORT, way.protocol)
    lab.remove_pod(pod.name)

    assert isinstance(answered, Answered)
    assert answered.server == pod.name
    assert pod not in lab.pods(where)
    gone = dial(lab.host("node"), way.address_of(pod), PORT, way.protocol, timeout=0.1)
    assert gone == Silent()


@pytest.mark.usefixtures("responders")
def test_dial_at_once_returns_the_server_of_each_target(lab: Lab) -> None:
    """For a closed port it returns no server."""
    names = [host.name for host in lab.pods("node")]
    targets = [DialTarget(way.address_of(lab.host(name)), PORT, way.protocol) for way in TRANSPORTS for name in names]
    closed = [DialTarget(way.address_of(lab.host("local-1")), CLOSED_PORT, way.protocol) for way in TRANSPORTS]

    answers = dial_at_once(lab.host("outside"), [*closed, *targets])

    assert answers == [NO_ANSWER] * len(closed) + names * len(TRANSPORTS)


@pytest.mark.parametrize("version", [4, 6])
def test_open_connection_echoes_until_packets_are_dropped(lab: Lab, responders: Responders, version: Version) -> None:
    """The connection still echoes after its server has stopped listening."""
    client, pod = lab.host("node"), lab.host("local-1")
    cut = "table inet cut { chain c { type filter hook output priority 0; drop; }\n}"
    responders.serve(pod, VIRTUAL_PORT)
    with OpenConnection(client, pod.address(version), VIRTUAL_PORT) as connection:
        responders.withdraw(pod, VIRTUAL_PORT)
        assert connection.server == pod.name
        assert connection.echoes(b"here")
        client.namespace.run(["nft", "-f", "-"], stdin=cut)
        assert not connection.echoes(b"and there", timeout=0.2)
        client.namespace.run(["nft", "delete", "table", "inet", "cut"])


def _current_namespace() -> Path:
    """Return the network namespace of the calling thread."""
    return Path("/proc/thread-self/ns/net").readlink()


def _open_files() -> Counter[Path]:
    """Return how often each file is open in this process."""
    found: Counter[Path] = Counter()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # The descriptor of this listing.
            found[file.readlink()] += 1
    return found


@every_transport
def test_closed_lab_leaves_no_file_open(way: Transport) -> None:
    """The calling thread is in its previous namespace again."""
    gc.collect()  # Close the files of earlier tests now, not during this test.
    before, home = _open_files(), _current_namespace()
    with Lab() as lab, Responders() as servers:
        pod = lab.host("remote-8")
        servers.serve(pod, PORT, way.protocol)
        first = dial(lab.host("outside"), way.address_of(pod), PORT, way.protocol)

    assert isinstance(first, Answered)
    # Fewer files are fine: a file watch of an earlier test may close its own at any time.
    assert _open_files() - before == Counter()
    assert _current_namespace() == home


def test_only_the_calling_thread_enters_a_namespace(lab: Lab) -> None:
    """Other threads stay where they are, also when entered() is nested."""
    seen: list[Path] = []
    home = _current_namespace()
    other = threading.Thread(target=lambda: seen.append(_current_namespace()))
    with lab.host("node").namespace.entered():
        node = _current_namespace()
        with lab.host("outside").namespace.entered():
            outside = _current_namespace()
            other.start()
            other.join()
        back = _current_namespace()

    assert len({home, node, outside}) == 3
    assert back == node
    assert _current_namespace() == home
    # A thread starts in the namespace of the thread that starts it.
    assert seen == [outside]


def test_failed_program_is_raised_with_its_output(lab: Lab) -> None:
    """Without ``check`` it is returned."""
    argv = [sys.executable, "-c", "import sys; sys.exit('no such luck')"]
    namespace = lab.host("node").namespace

    assert namespace.run(argv, check=False).returncode == 1
    with pytest.raises(subprocess.CalledProcessError) as failure:
        namespace.run(argv)
    assert "no such luck" in failure.value.__notes__[0]


def test_lab_works_in_a_user_namespace() -> None:
    """An unprivileged user can build a lab, if user namespaces are allowed."""
    program = """
import sys
from tests.support import privilege
from tests.support.lab.topology import Lab
try:
    privilege._become_root_of_user_namespace()
except OSError:
    sys.exit("not allowed")
with Lab(local_pods=1, remote_pods=1) as lab:
    print(privilege.can_make_namespaces(), *(host.name for host in lab))
"""
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    if done.stderr == "not allowed\n":
        pytest.skip("user namespaces are not allowed here")

    assert (done.stdout, done.stderr) == ("True outside node remote local-1 remote-1\n", "")
