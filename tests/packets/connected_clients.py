"""Connects from the clients of an explanation, and compares the result with the outcomes that it states."""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import cast

from knft.explain.explanation import ExplainedFrontend, ExplainedPort
from knft.explain.outcomes import ClientOutcome
from knft.protocols import NFT_PROTOCOLS, Protocol
from tests.support.lab import plan
from tests.support.lab.outcomes import Answered, Outcome, Rejected, Silent
from tests.support.lab.outcomes import Protocol as LabProtocol
from tests.support.lab.topology import Host, Lab
from tests.support.lab.traffic import dial
from tests.support.packets.scenario_runner import MAX_ATTEMPTS, MIN_ATTEMPTS, SILENCE
from tests.support.waiting import TIMEOUT

_HOSTS = {
    "outside": ("outside",),
    "pod": ("local-4",),
    "any": ("outside", "local-4"),
    "node": (plan.NODE.host,),
}
"""The hosts that are clients of each kind; no endpoint, so that none connects to itself."""


class Clients:
    """The hosts of the lab as clients."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._checked: set[tuple[object, ...]] = set()
        self.outcomes_without_client: set[tuple[str, str]] = set()
        """The kind and the description of the clients of outcomes for which the lab has no host."""

    def dial(
        self, client: str, address: str, port: int, protocol: LabProtocol = "tcp", *, source: str | None = None,
        silent: bool = False,
    ) -> Outcome:  # fmt: skip
        """Connect once; ``silent`` if no answer is expected."""
        timeout = SILENCE if silent else TIMEOUT
        return dial(self._lab.host(client), address, port, protocol, source=source, timeout=timeout)

    def has_checked(self, reason: str) -> bool:
        """Whether packets were sent for an outcome with that reason in its text."""
        return any(isinstance(outcome, ClientOutcome) and reason in outcome.text for outcome, *_ in self._checked)

    def check(self, outcomes: Iterable[ClientOutcome], address: str, port: int, protocol: Protocol) -> int:
        """Connect from a client of each kind, and compare; return for how many outcomes.

        A question that was checked before is not checked again.
        """
        sent = 0
        for outcome in outcomes:
            clients = list(self._clients(outcome, address))
            if not clients:
                self.outcomes_without_client.add((outcome.client, outcome.which))
                continue
            sent += 1
            key = (outcome, address, port, protocol)
            if key not in self._checked:
                self._checked.add(key)
                for client, source in clients:
                    self._check(client, source, outcome, (address, port, cast(LabProtocol, NFT_PROTOCOLS[protocol])))
        return sent

    def _clients(self, outcome: ClientOutcome, address: str) -> Iterator[tuple[Host, str | None]]:
        """Yield hosts that the outcome is for, one of each kind, and an address of each; None is its own address."""
        version = _version(address)
        for name in _HOSTS[outcome.client]:
            host = self._lab.host(name)
            own = [host.address(version), *([plan.SECOND_OUTSIDE.of(version)] if name == "outside" else [])]
            fitting = [source for source in own if any(_is_in(source, pair) for pair in outcome.sources)]
            if name == plan.NODE.host:
                yield host, None
            elif fitting:
                yield host, fitting[0]

    def _check(
        self, client: Host, source: str | None, outcome: ClientOutcome, target: tuple[str, int, LabProtocol]
    ) -> None:
        described = (client.name, target, outcome.text)
        if outcome.fate != "delivered":
            found = self.dial(client.name, *target, source=source, silent=outcome.fate == "dropped")
            assert found == (Silent() if outcome.fate == "dropped" else Rejected("icmp")), described
            return
        if not outcome.endpoints:
            found = self.dial(client.name, *target, source=source)
            # The destination itself answers: a server there, or the node, whose port is closed.
            assert found == Rejected("reset") or (isinstance(found, Answered) and found.address == target[0]), described
            return
        answered = self._answers(client, source, outcome, target)
        expected = set(outcome.endpoints)
        assert answered <= expected if outcome.affinity_seconds else answered == expected, described
        assert len(answered) == 1 or not outcome.affinity_seconds, described

    def _answers(
        self, client: Host, source: str | None, outcome: ClientOutcome, target: tuple[str, int, LabProtocol]
    ) -> set[str]:
        """Connect until every endpoint has answered; check the source that each sees, and return the endpoints."""
        answered: set[str] = set()
        for attempt in range(MAX_ATTEMPTS):
            found = self.dial(client.name, *target, source=source)
            assert isinstance(found, Answered), (client.name, target, outcome.text, found)
            sources = _sources(found.server, source or client.address(_version(target[0])), outcome)
            assert found.source in sources, (client.name, target, outcome.text, found)
            answered.add(_socket(found.address, found.port))
            if attempt >= MIN_ATTEMPTS and (answered == set(outcome.endpoints) or outcome.affinity_seconds):
                break
        return answered

    def reaches_itself(self, port: ExplainedPort, frontend: ExplainedFrontend) -> bool:
        """Tell whether an endpoint on the node that connects to the frontend gets itself, from the node's address."""
        version = _version(frontend.at)
        protocol = cast(LabProtocol, NFT_PROTOCOLS[port.protocol])
        for host in self._lab.pods(plan.NODE.host):
            if not any(_host_of(each.endpoint) == host.address(version) for each in port.endpoints if each.is_used):
                continue
            for _ in range(MAX_ATTEMPTS):
                found = self.dial(host.name, frontend.at, frontend.port, protocol)
                if isinstance(found, Answered) and found.server == host.name:
                    return found.source == plan.NODE.gateway.of(version)
        return False


def _version(address: str) -> plan.Version:
    return 6 if ":" in address else 4


def _sources(server: str, own: str, outcome: ClientOutcome) -> set[str]:
    """Return the sources that a server may see; the kernel selects the destination as the source of the node itself."""
    if outcome.source == "kept":
        return {own, *outcome.sources} if outcome.client == "node" else {own}
    is_local = server.startswith(f"{plan.NODE.pod_prefix}-")
    return {(plan.NODE.gateway if is_local else plan.NODE.lan).of(_version(own))}


def _host_of(endpoint: str) -> str:
    return endpoint.rpartition(":")[0].removeprefix("[").removesuffix("]")


def _socket(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _is_in(address: str, pair: str) -> bool:
    first, _, last = pair.partition("-")
    number = int(ipaddress.ip_address(address))
    return int(ipaddress.ip_address(first)) <= number <= int(ipaddress.ip_address(last or first))
