"""The lab itself is right: every scenario test stands on these claims."""

import gc
import itertools
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from .outcomes import Answered, Outcome, Rejected, Silent, Unreachable
from .plan import NODES, OTHER_OUTSIDE, Version
from .responders import Responders
from .topology import Host, Lab
from .traffic import NOBODY_ANSWERED, OpenConnection, Target, dial, dial_at_once, dial_many
from .ways import PORT, WAYS, Way

CLOSED_PORT = 8081
VIRTUAL_PORT = 80
KINDS = ("node", "remote", "outside", "local-1", "local-2", "remote-1", "remote-2")
pytestmark = pytest.mark.kernel
every_way = pytest.mark.parametrize("way", WAYS, ids=str)


def _sender(outcome: Outcome) -> str | None:
    assert isinstance(outcome, Rejected)
    return outcome.sender


@every_way
@pytest.mark.parametrize(("client", "server"), list(itertools.product(KINDS, KINDS)))
def test_everybody_reaches_everybody(lab: Lab, responders: Responders, client: str, server: str, way: Way) -> None:
    """Without any rules, each host reaches each other one, and is seen with its own address."""
    responders.reset_counts()
    target = lab.host(server)

    outcome = dial(lab.host(client), way.to(target), PORT, way.protocol)

    assert isinstance(outcome, Answered)
    assert (outcome.server, outcome.address, outcome.port) == (server, way.to(target), PORT)
    assert outcome.source in _addresses(lab.host(client), way)
    assert responders.counts == {server: 1}


def _addresses(host: Host, way: Way) -> set[str]:
    """Return the addresses of a host; a node has one towards the lan and one towards its pods."""
    gateways = {plan.gateway.of(way.version) for plan in NODES if plan.host == host.name}
    return {way.to(host), *gateways}


@every_way
@pytest.mark.usefixtures("responders")
def test_source_is_chosen(lab: Lab, way: Way) -> None:
    """The outside client can use its second address, and a port of its choice, again and again."""
    source, target = OTHER_OUTSIDE.of(way.version), way.to(lab.host("local-1"))
    for _ in range(3):
        outcome = dial(lab.host("outside"), target, PORT, way.protocol, source=source, source_port=5555)

        assert outcome == Answered("local-1", target, PORT, source, 5555)


@every_way
@pytest.mark.parametrize("client", ["outside", "node", "local-1", "local-2"])
def test_closed_port(lab: Lab, client: str, way: Way) -> None:
    """A host without a listener resets TCP and refuses UDP by ICMP."""
    target = way.to(lab.host("local-1"))

    outcome = dial(lab.host(client), target, CLOSED_PORT, way.protocol)

    assert outcome == Rejected("reset" if way.protocol == "tcp" else "icmp")
    assert _sender(outcome) == (None if way.protocol == "tcp" else target)


@every_way
@pytest.mark.parametrize("client", ["outside", "node", "local-1"])
def test_virtual_address_is_swallowed(lab: Lab, client: str, way: Way) -> None:
    """Without a proxy, a Service address leads to silence: no route is missing and nobody complains."""
    outcome = dial(lab.host(client), way.virtual, VIRTUAL_PORT, way.protocol, timeout=0.2)

    assert outcome == Silent()


@every_way
def test_no_route(lab: Lab, way: Way) -> None:
    """An address without a route is told from one that is silent."""
    target = "198.51.100.1" if way.version == 4 else "2001:db8:ffff::1"

    assert isinstance(dial(lab.host("outside"), target, PORT, way.protocol), Unreachable)


@every_way
def test_withdrawn_server(lab: Lab, way: Way) -> None:
    """A withdrawn server is a closed port, which can be served again."""
    pod = lab.host("local-3")
    with Responders() as servers:
        for _ in range(2):
            servers.serve(pod, 9000, way.protocol)
            answered = dial(lab.host("node"), way.to(pod), 9000, way.protocol)
            assert isinstance(answered, Answered)
            servers.withdraw(pod, 9000, way.protocol)

        refused = dial(lab.host("node"), way.to(pod), 9000, way.protocol)
        many = dial_many(lab.host("node"), way.to(pod), 9000, way.protocol, 3)

    assert isinstance(refused, Rejected)
    assert many == {NOBODY_ANSWERED: 3}


@every_way
@pytest.mark.parametrize("where", ["node", "remote"])
def test_pod_comes_and_goes(lab: Lab, where: str, way: Way) -> None:
    """A pod added later is like the first ones; a removed one is gone."""
    pod = lab.add_pod(where)
    with Responders() as servers:
        servers.serve(pod, PORT, way.protocol)
        answered = dial(lab.host("outside"), way.to(pod), PORT, way.protocol)
    lab.remove_pod(pod.name)

    assert isinstance(answered, Answered)
    assert answered.server == pod.name
    assert pod not in lab.pods(where)
    gone = dial(lab.host("node"), way.to(pod), PORT, way.protocol, timeout=0.1)
    assert gone == Silent()


@pytest.mark.usefixtures("responders")
def test_many_are_dialled_at_once(lab: Lab) -> None:
    """Each answer belongs to its own target, and a closed port is nobody's."""
    names = [host.name for host in lab.pods("node")]
    targets = [Target(way.to(lab.host(name)), PORT, way.protocol) for way in WAYS for name in names]
    closed = [Target(way.to(lab.host("local-1")), CLOSED_PORT, way.protocol) for way in WAYS]

    answers = dial_at_once(lab.host("outside"), [*closed, *targets], timeout=0.3)

    assert answers == [NOBODY_ANSWERED] * len(closed) + names * len(WAYS)


@pytest.mark.parametrize("version", [4, 6])
def test_an_open_connection_echoes_until_it_is_cut(lab: Lab, responders: Responders, version: Version) -> None:
    """And goes on when its server no longer listens."""
    client, pod = lab.host("node"), lab.host("local-1")
    cut = "table inet cut { chain c { type filter hook output priority 0; drop; }\n}"
    responders.serve(pod, VIRTUAL_PORT)
    with OpenConnection(client, pod.address(version), VIRTUAL_PORT, timeout=0.2) as connection:
        responders.withdraw(pod, VIRTUAL_PORT)
        assert connection.server == pod.name
        assert connection.echoes(b"here")
        client.namespace.run(["nft", "-f", "-"], stdin=cut)
        assert not connection.echoes(b"and there")
        client.namespace.run(["nft", "delete", "table", "inet", "cut"])


def _where() -> Path:
    """Return which namespace the thread is in."""
    return Path("/proc/thread-self/ns/net").readlink()


def _own_files() -> Counter[Path]:
    """Return the files that are open, by what they are: a socket has a number of its own."""
    found: Counter[Path] = Counter()
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # This very listing's own.
            found[file.readlink()] += 1
    return found


@every_way
def test_nothing_is_left(way: Way) -> None:
    """Building, using and closing a lab leaves no file open and the thread where it was."""
    gc.collect()  # Earlier tests' files are closed now, and not in between.
    before, home = _own_files(), _where()
    with Lab() as lab, Responders() as servers:
        pod = lab.host("remote-8")
        servers.serve(pod, PORT, way.protocol)
        first = dial(lab.host("outside"), way.to(pod), PORT, way.protocol)

    assert isinstance(first, Answered)
    # Less is no matter: a watch on files, which an earlier test has ended, closes its own in its own time.
    assert _own_files() - before == Counter()
    assert _where() == home


def test_only_the_calling_thread_enters(lab: Lab) -> None:
    """While one thread is in a namespace, the others stay where they are, and so it goes on for each entering."""
    seen: list[Path] = []
    home = _where()
    other = threading.Thread(target=lambda: seen.append(_where()))
    with lab.host("node").namespace.entered():
        node = _where()
        with lab.host("outside").namespace.entered():
            outside = _where()
            other.start()
            other.join()
        back = _where()

    assert len({home, node, outside}) == 3
    assert back == node
    assert _where() == home
    # A thread starts in the namespace of the one that starts it.
    assert seen == [outside]


def test_program_failure_is_told(lab: Lab) -> None:
    """A failed program is raised with what it said; without ``check`` it is returned."""
    argv = [sys.executable, "-c", "import sys; sys.exit('no such luck')"]
    namespace = lab.host("node").namespace

    assert namespace.run(argv, check=False).returncode == 1
    with pytest.raises(subprocess.CalledProcessError) as failure:
        namespace.run(argv)
    assert "no such luck" in failure.value.__notes__[0]


def test_user_namespace_is_enough() -> None:
    """Whoever may make a user namespace may build a lab there, as root of nothing else."""
    program = """
import sys
from tests.support.lab import privilege
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
