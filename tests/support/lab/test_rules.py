"""The lab reports correctly what nft rules on its node do to packets."""

import time

import pytest

from tests.support.lab.links import flush_conntrack
from tests.support.lab.namespace import Namespace
from tests.support.lab.outcomes import Answered, Rejected, Silent
from tests.support.lab.plan import NODE
from tests.support.lab.topology import Host, Lab
from tests.support.lab.traffic import dial, dial_many
from tests.support.lab.transports import PORT, TRANSPORTS, Transport

VIRTUAL_PORT = 80
pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("way", TRANSPORTS, ids=str)]


def _load(namespace: Namespace, rules: str) -> None:
    namespace.run(["nft", "-f", "-"], stdin=rules)


def _in_chain(way: Transport, hook: str, rule: str) -> str:
    return f"table {way.family} t {{ chain c {{ type filter hook {hook} priority 0; {rule}; }}\n}}"


def _forwarding_to(pod: Host, way: Transport, then: str = "accept") -> str:
    """Return rules that send the virtual address to a pod, from outside of the node and from itself."""
    match = f"{way.family} daddr {way.virtual} {way.protocol} dport {VIRTUAL_PORT}"
    target = way.address_of(pod) if way.version == 4 else f"[{way.address_of(pod)}]"
    return f"""
    table {way.family} t {{
      chain pre {{ type nat hook prerouting priority -100; {match} dnat to {target}:{PORT}; }}
      chain out {{ type nat hook output priority -100; {match} dnat to {target}:{PORT}; }}
      chain post {{ type nat hook postrouting priority 100; ct status dnat {then}; }}
    }}"""


@pytest.mark.parametrize(
    ("hook", "client"),
    [("forward", "outside"), ("forward", "local-1"), ("output", "node"), ("input", "outside")],
)
def test_reject_rule_sends_an_icmp_error(lab: Lab, node: Namespace, hook: str, client: str, way: Transport) -> None:
    """A reject has another outcome than a reset, and its ICMP errors are not rate limited."""
    target = way.address_of(lab.host("node" if hook == "input" else "remote-1"))
    match = f"{way.protocol} dport {PORT}"
    reject = "reject with icmp port-unreachable" if way.version == 4 else "reject"
    _load(node, _in_chain(way, hook, f"{match} {reject}"))

    outcomes = [dial(lab.host(client), target, PORT, way.protocol) for _ in range(100)]

    assert outcomes == [Rejected("icmp")] * 100
    (sender,) = {outcome.sender for outcome in outcomes if isinstance(outcome, Rejected)}
    assert sender in {NODE.lan.of(way.version), NODE.gateway.of(way.version)}


@pytest.mark.usefixtures("responders")
@pytest.mark.parametrize(("hook", "client"), [("forward", "outside"), ("output", "node")])
def test_dropped_packet_is_silent(lab: Lab, node: Namespace, hook: str, client: str, way: Transport) -> None:
    """Also if the client's own host drops it."""
    target = way.address_of(lab.host("remote-1"))
    _load(node, _in_chain(way, hook, f"{way.protocol} dport {PORT} drop"))

    assert dial(lab.host(client), target, PORT, way.protocol, timeout=0.2) == Silent()


@pytest.mark.usefixtures("responders")
@pytest.mark.parametrize("client", ["outside", "node", "local-1", "local-2"])
@pytest.mark.parametrize("server", ["local-1", "remote-1"])
def test_dnat_with_masquerading_works_from_every_host(
    lab: Lab, node: Namespace, client: str, server: str, way: Transport
) -> None:
    """Every host reaches the pod by a virtual address, also the pod itself."""
    pod = lab.host(server)
    _load(node, _forwarding_to(pod, way, then="masquerade"))

    outcome = dial(lab.host(client), way.virtual, VIRTUAL_PORT, way.protocol)

    assert isinstance(outcome, Answered)
    assert outcome.server == server
    assert outcome.source == (NODE.gateway if server == "local-1" else NODE.lan).of(way.version)


@pytest.mark.usefixtures("responders")
@pytest.mark.parametrize(("client", "server"), [("outside", "local-1"), ("local-2", "local-1")])
def test_dnat_without_masquerading_keeps_the_source(
    lab: Lab, node: Namespace, client: str, server: str, way: Transport
) -> None:
    """The pod sees the client's address, and its answer reaches the client."""
    _load(node, _forwarding_to(lab.host(server), way))

    outcome = dial(lab.host(client), way.virtual, VIRTUAL_PORT, way.protocol)

    assert isinstance(outcome, Answered)
    assert (outcome.server, outcome.source) == (server, way.address_of(lab.host(client)))


@pytest.mark.usefixtures("responders")
def test_thousands_of_connections_are_answered(
    lab: Lab, node: Namespace, capsys: pytest.CaptureFixture[str], way: Transport
) -> None:
    """At more than 1 000 in a second of this process's CPU time, which another load of the machine does not change."""
    count = 4000
    _load(node, _forwarding_to(lab.host("remote-1"), way, then="masquerade"))
    started = time.process_time()

    names = dial_many(lab.host("outside"), way.virtual, VIRTUAL_PORT, way.protocol, count)

    speed = count / (time.process_time() - started)
    with capsys.disabled():
        print(f" {speed:.0f} {way.protocol} connections in a second of CPU time over IPv{way.version}", end="")
    assert names == {"remote-1": count}
    assert speed > 1000


@pytest.mark.usefixtures("responders")
def test_udp_flow_keeps_its_translation_until_conntrack_is_flushed(lab: Lab, node: Namespace, way: Transport) -> None:
    """New rules do not change the pod of a UDP flow; a TCP connection is always new."""
    answered = []
    for server, forget in (("local-1", False), ("local-2", False), ("local-2", True)):
        _load(node, "flush ruleset\n" + _forwarding_to(lab.host(server), way))
        if forget:
            flush_conntrack(node)
        outcome = dial(lab.host("outside"), way.virtual, VIRTUAL_PORT, way.protocol, source_port=6666)
        assert isinstance(outcome, Answered)
        answered.append(outcome.server)

    stays = "local-1" if way.protocol == "udp" else "local-2"
    assert answered == ["local-1", stays, "local-2"]
