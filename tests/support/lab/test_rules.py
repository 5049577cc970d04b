"""The lab under nft rules in its node: what a proxy does to packets is seen for what it is."""

import time

import pytest

from .links import forget_flows
from .namespace import Namespace
from .outcomes import Answered, Rejected, Silent
from .plan import NODE
from .topology import Host, Lab
from .traffic import dial, dial_many
from .ways import PORT, WAYS, Way

VIRTUAL_PORT = 80
pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("way", WAYS, ids=str)]


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


@pytest.mark.parametrize(
    ("hook", "client"),
    [("forward", "outside"), ("forward", "local-1"), ("output", "node"), ("input", "outside")],
)
def test_reject_in_node(lab: Lab, node: Namespace, hook: str, client: str, way: Way) -> None:
    """A proxy's reject is told from a host's reset, however many there are."""
    target = way.to(lab.host("node" if hook == "input" else "remote-1"))
    match = f"{way.protocol} dport {PORT}"
    reject = "reject with icmp port-unreachable" if way.version == 4 else "reject"
    _load(node, _in_chain(way, hook, f"{match} {reject}"))

    outcomes = [dial(lab.host(client), target, PORT, way.protocol) for _ in range(100)]

    assert outcomes == [Rejected("icmp")] * 100
    (sender,) = {outcome.sender for outcome in outcomes if isinstance(outcome, Rejected)}
    assert sender in {NODE.lan.of(way.version), NODE.gateway.of(way.version)}


@pytest.mark.usefixtures("responders")
@pytest.mark.parametrize(("hook", "client"), [("forward", "outside"), ("output", "node")])
def test_drop_in_node(lab: Lab, node: Namespace, hook: str, client: str, way: Way) -> None:
    """A dropped packet is silence, and also if the client's own host drops it."""
    target = way.to(lab.host("remote-1"))
    _load(node, _in_chain(way, hook, f"{way.protocol} dport {PORT} drop"))

    assert dial(lab.host(client), target, PORT, way.protocol, timeout=0.2) == Silent()


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
