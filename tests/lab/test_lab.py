"""The lab itself is right: every scenario test stands on these claims."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from .links import forget_flows
from .namespace import Namespace
from .outcomes import Answered, Outcome, Protocol, Rejected, Silent, Unreachable
from .plan import NODE, OTHER_OUTSIDE, Version
from .responders import Responders
from .topology import Host, Lab
from .traffic import NOBODY_ANSWERED, dial, dial_many

PORT = 8080
CLOSED_PORT = 8081
VIRTUAL_PORT = 80
KINDS = ("node", "remote", "outside", "local-1", "local-2", "remote-1", "remote-2")


class Way(NamedTuple):
    """One family and one protocol; each claim is tested in all four."""

    version: Version
    protocol: Protocol

    @property
    def family(self) -> str:
        """The family as nft spells it."""
        return "ip" if self.version == 4 else "ip6"

    @property
    def virtual(self) -> str:
        """A Service address, which nobody has."""
        return "10.96.0.10" if self.version == 4 else "fd00:10:96::10"

    def to(self, host: Host) -> str:
        """Return the address of a host."""
        return host.address(self.version)

    def __str__(self) -> str:
        """Return a short name for test reports."""
        return f"{self.protocol}{self.version}"


PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
WAYS = [Way(4, "tcp"), Way(4, "udp"), Way(6, "tcp"), Way(6, "udp")]
pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("way", WAYS, ids=str)]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """One lab for all tests; they leave no rules behind."""
    with Lab() as built:
        yield built


@pytest.fixture(scope="module")
def responders(lab: Lab) -> Iterator[Responders]:
    """Answer at PORT on every host, in both protocols."""
    with Responders() as servers:
        for host, protocol in itertools.product(lab, PROTOCOLS):
            servers.serve(host, PORT, protocol)
        yield servers


@pytest.fixture
def node(lab: Lab) -> Iterator[Namespace]:
    """Give the node under test, whose rules and flows are flushed afterwards."""
    namespace = lab.host("node").namespace
    yield namespace
    _load(namespace, "flush ruleset")
    forget_flows(namespace)


def _load(namespace: Namespace, rules: str) -> None:
    namespace.run(["nft", "-f", "-"], stdin=rules)


def _in_chain(way: Way, hook: str, rule: str) -> str:
    return f"table {way.family} t {{ chain c {{ type filter hook {hook} priority 0; {rule}; }}\n}}"


def _forwarding_to(pod: Host, way: Way, then: str = "accept") -> str:
    """Return rules that send the virtual address to a pod, from outside of the node and from itself."""
    match = f"{way.family} daddr {way.virtual} {way.protocol} dport {VIRTUAL_PORT}"
    target = way.to(pod) if way.version == 4 else f"[{way.to(pod)}]"
    return f"""
    table {way.family} t {{
      chain pre {{ type nat hook prerouting priority -100; {match} dnat to {target}:{PORT}; }}
      chain out {{ type nat hook output priority -100; {match} dnat to {target}:{PORT}; }}
      chain post {{ type nat hook postrouting priority 100; ct status dnat {then}; }}
    }}"""


def _sender(outcome: Outcome) -> str | None:
    assert isinstance(outcome, Rejected)
    return outcome.sender


@pytest.mark.parametrize(("client", "server"), list(itertools.product(KINDS, KINDS)))
def test_everybody_reaches_everybody(lab: Lab, responders: Responders, client: str, server: str, way: Way) -> None:
    """Without any rules, each host reaches each other one, and is seen with its own address."""
    responders.reset_counts()
    target = lab.host(server)

    outcome = dial(lab.host(client), way.to(target), PORT, way.protocol)

    assert isinstance(outcome, Answered)
    assert (outcome.server, outcome.address, outcome.port) == (
        server,
        way.to(target),
        PORT,
    )
    if client != server and not (client in {"node", "remote"} and server.startswith(client)):
        assert outcome.source in _addresses(lab.host(client), way)
    assert responders.counts == {server: 1}


def _addresses(host: Host, way: Way) -> set[str]:
    gateways = {NODE.host: NODE.gateway.of(way.version)}
    return {way.to(host), gateways.get(host.name, way.to(host))}


@pytest.mark.usefixtures("responders")
def test_source_is_chosen(lab: Lab, way: Way) -> None:
    """The outside client can use its second address, and a port of its choice, again and again."""
    source, target = OTHER_OUTSIDE.of(way.version), way.to(lab.host("local-1"))
    for _ in range(3):
        outcome = dial(lab.host("outside"), target, PORT, way.protocol, source=source, source_port=5555)

        assert outcome == Answered("local-1", target, PORT, source, 5555)


@pytest.mark.parametrize("client", ["outside", "node", "local-1", "local-2"])
def test_closed_port(lab: Lab, client: str, way: Way) -> None:
    """A host without a listener resets TCP and refuses UDP by ICMP."""
    target = way.to(lab.host("local-1"))

    outcome = dial(lab.host(client), target, CLOSED_PORT, way.protocol)

    assert outcome == Rejected("reset" if way.protocol == "tcp" else "icmp")
    assert _sender(outcome) == (None if way.protocol == "tcp" else target)


@pytest.mark.parametrize(
    ("hook", "client"),
    [("forward", "outside"), ("forward", "local-1"), ("output", "node"), ("input", "outside")],
)
def test_reject_in_node(lab: Lab, node: Namespace, hook: str, client: str, way: Way) -> None:
    """A proxy's reject is told from a host's reset, at once and however many there are."""
    target = way.to(lab.host("node" if hook == "input" else "remote-1"))
    match = f"{way.protocol} dport {PORT}"
    reject = "reject with icmp port-unreachable" if way.version == 4 else "reject"
    _load(node, _in_chain(way, hook, f"{match} {reject}"))

    started = time.monotonic()
    outcomes = [dial(lab.host(client), target, PORT, way.protocol) for _ in range(100)]

    assert outcomes == [Rejected("icmp")] * 100
    assert time.monotonic() - started < 1
    assert _sender(outcomes[0]) is not None


@pytest.mark.usefixtures("responders")
@pytest.mark.parametrize(("hook", "client"), [("forward", "outside"), ("output", "node")])
def test_drop_in_node(lab: Lab, node: Namespace, hook: str, client: str, way: Way) -> None:
    """A dropped packet is silence, and also if the client's own host drops it."""
    target = way.to(lab.host("remote-1"))
    _load(node, _in_chain(way, hook, f"{way.protocol} dport {PORT} drop"))

    assert dial(lab.host(client), target, PORT, way.protocol, timeout=0.2) == Silent()


@pytest.mark.parametrize("client", ["outside", "node", "local-1"])
def test_virtual_address_is_swallowed(lab: Lab, client: str, way: Way) -> None:
    """Without a proxy, a Service address leads to silence: no route is missing and nobody complains."""
    outcome = dial(lab.host(client), way.virtual, VIRTUAL_PORT, way.protocol, timeout=0.2)

    assert outcome == Silent()


def test_no_route(lab: Lab, way: Way) -> None:
    """An address without a route is told from one that is silent."""
    target = "198.51.100.1" if way.version == 4 else "2001:db8:ffff::1"

    assert isinstance(dial(lab.host("outside"), target, PORT, way.protocol), Unreachable)


@pytest.mark.usefixtures("responders")
@pytest.mark.parametrize("client", ["outside", "node", "local-1", "local-2"])
@pytest.mark.parametrize("server", ["local-1", "remote-1"])
def test_destination_translation(lab: Lab, node: Namespace, client: str, server: str, way: Way) -> None:
    """With masquerading a virtual address leads everybody to the pod, even a pod to itself."""
    pod = lab.host(server)
    _load(node, _forwarding_to(pod, way, then="masquerade"))

    outcome = dial(lab.host(client), way.virtual, VIRTUAL_PORT, way.protocol)

    assert isinstance(outcome, Answered)
    assert outcome.server == server
    assert outcome.source == (NODE.gateway if server == "local-1" else NODE.lan).of(way.version)


@pytest.mark.usefixtures("responders")
@pytest.mark.parametrize(("client", "server"), [("outside", "local-1"), ("local-2", "local-1")])
def test_source_is_kept(lab: Lab, node: Namespace, client: str, server: str, way: Way) -> None:
    """Without masquerading the pod sees the client, and the answer still finds its way back."""
    _load(node, _forwarding_to(lab.host(server), way))

    outcome = dial(lab.host(client), way.virtual, VIRTUAL_PORT, way.protocol)

    assert isinstance(outcome, Answered)
    assert (outcome.server, outcome.source) == (server, way.to(lab.host(client)))


@pytest.mark.usefixtures("responders")
def test_many_dials(lab: Lab, node: Namespace, capsys: pytest.CaptureFixture[str], way: Way) -> None:
    """Thousands of connections through the node are quick, and every one is answered."""
    count = 4000
    _load(node, _forwarding_to(lab.host("remote-1"), way, then="masquerade"))
    started = time.monotonic()

    names = dial_many(lab.host("outside"), way.virtual, VIRTUAL_PORT, way.protocol, count)

    speed = count / (time.monotonic() - started)
    with capsys.disabled():
        print(f" {speed:.0f} {way.protocol} connections a second over IPv{way.version}", end="")
    assert names == {"remote-1": count}
    assert speed > 1000


@pytest.mark.usefixtures("responders")
def test_flows_are_forgotten(lab: Lab, node: Namespace, way: Way) -> None:
    """A UDP flow goes on to its first pod when the rules change, until flows are forgotten."""
    answered = []
    for server, forget in (("local-1", False), ("local-2", False), ("local-2", True)):
        _load(node, "flush ruleset\n" + _forwarding_to(lab.host(server), way))
        if forget:
            forget_flows(node)
        outcome = dial(lab.host("outside"), way.virtual, VIRTUAL_PORT, way.protocol, source_port=6666)
        assert isinstance(outcome, Answered)
        answered.append(outcome.server)

    stays = "local-1" if way.protocol == "udp" else "local-2"
    assert answered == ["local-1", stays, "local-2"]


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


def _own_files() -> tuple[int, Path]:
    """Return how many files are open, and which namespace the thread is in."""
    return len(list(Path("/proc/self/fd").iterdir())), Path("/proc/thread-self/ns/net").readlink()


def test_nothing_is_left(way: Way) -> None:
    """Building, using and closing a lab leaves no file open and the thread where it was."""
    before = _own_files()
    started = time.monotonic()
    with Lab() as lab, Responders() as servers:
        took = time.monotonic() - started
        pod = lab.host("remote-8")
        servers.serve(pod, PORT, way.protocol)
        first = dial(lab.host("outside"), way.to(pod), PORT, way.protocol)

    assert isinstance(first, Answered)
    assert took < 1.5
    assert _own_files() == before
