"""Sends each packet on all nodes until the same servers have answered, and returns the packets that differ.

An endpoint is chosen at random, so a packet's results are the set of the results of many connections. A client of a
Service with session affinity has one endpoint, which may be another on each node. It must be one of those that clients
with varying addresses get, which are the same on all nodes, and see the same source address.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.parity.dial import Result, Target, dial_all
from tests.parity.nodes import ParityNode
from tests.parity.packets import OUTSIDE, source_address
from tests.parity.predicted_results import kind_of
from tests.parity.varying_clients import VARYING, concrete

Results = frozenset[Result]
"""All results of one packet, sent several times."""
_MIN_ROUNDS = 5
_MIN_ROUNDS_OF_VARYING = 30
"""Rounds after which clients with varying addresses have got each endpoint on one of the nodes."""
_MAX_ROUNDS = 250
_ROUNDS_BY_RESULT = 25
"""Rounds for each different result, after which all have been seen: one is missed with probability e^-25."""
_REFUSAL_ROUNDS = 8
"""Rounds after which a packet that is refused on one node only is sent again with a longer timeout."""
_DROP_TIMEOUTS = (0.15, 1.0, 3.0)
"""Seconds without an answer that count as a drop: a packet differs only if it does with the longest time too."""
_ANY_ENDPOINT = "one endpoint for each client"
_ANSWERED = " from "


class Mismatch(NamedTuple):
    """A packet whose results differ, and its results on both nodes."""

    target: Target
    left: Results
    right: Results

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.target}: {' or '.join(sorted(self.left))} | knft: {' or '.join(sorted(self.right))}"


class Observations:
    """The results of all packets on each node."""

    def __init__(
        self,
        left: Sequence[ParityNode],
        right: ParityNode,
        targets: Sequence[Target],
        sticky: Mapping[Target, bool],
        allowed: Mapping[Target, Mapping[str, frozenset[str]]],
    ) -> None:
        """Send nothing yet.

        ``sticky`` tells for packets to Services with affinity whether a client has one server. ``allowed`` has the
        kinds of results (``predicted_results``) of the packets with an expected difference, by the names of the nodes:
        those are compared instead of the results of the node on the right.
        """
        self._left, self._right = tuple(left), right
        self._allowed = allowed
        self._nodes = (*left, right)
        self._targets = targets
        self._sticky = sticky
        self._sent = [0] * len(targets)
        self._results: dict[str, list[set[Result]]] = {node.name: [set() for _ in targets] for node in self._nodes}

    def observe(self) -> None:
        """Send packets until each has equal results on all nodes, or those that are allowed, or up to the limits."""
        pending = list(range(len(self._targets)))
        for drop_timeout in _DROP_TIMEOUTS:
            for number in pending:
                for results in self._results.values():
                    results[number].clear()
            unequal = self._dial_until_equal(pending, drop_timeout)
            # If all packets were answered, a longer timeout does not change the results.
            pending = [number for number in unequal if any(self._refusals_of(number))]

    def _dial_until_equal(self, pending: list[int], drop_timeout: float) -> list[int]:
        unequal: list[int] = []
        # With a longer timeout each packet is sent several times at once, because every drop costs this time.
        at_once = 1 if drop_timeout == _DROP_TIMEOUTS[0] else _REFUSAL_ROUNDS
        for count in range(at_once, _MAX_ROUNDS + 1, at_once):
            if not pending:
                break
            self._dial(pending * at_once, drop_timeout)
            rest = []
            for number in pending:
                if self._is_equal(number):
                    if count < self._min_rounds(number) and self._is_answered(number):
                        rest.append(number)
                elif self._cannot_become_equal(number, count):
                    unequal.append(number)
                else:
                    rest.append(number)
            pending = rest
        return [*unequal, *pending]

    def _min_rounds(self, number: int) -> int:
        return _MIN_ROUNDS_OF_VARYING if self._targets[number].source == VARYING else _MIN_ROUNDS

    def _dial(self, numbers: Sequence[int], drop_timeout: float) -> None:
        targets = [self._next(number) for number in numbers]
        with ThreadPoolExecutor(len(self._nodes)) as threads:
            found = list(threads.map(lambda node: dial_all(node.lab, targets, drop_timeout), self._nodes))
        for node, results in zip(self._nodes, found, strict=True):
            for number, target, result in zip(numbers, targets, results, strict=True):
                self._results[node.name][number].add(with_fixed_source(self._targets[number], target, result))

    def _next(self, number: int) -> Target:
        self._sent[number] += 1
        return concrete(self._targets[number], self._sent[number])

    def _is_equal(self, number: int) -> bool:
        expected = self._comparable(self._right, number)
        compared = [node for node in self._left if not self._allowed_on(node, number)]
        return not self._disallowed(number) and all(self._comparable(node, number) == expected for node in compared)

    def _allowed_on(self, node: ParityNode, number: int) -> frozenset[str]:
        return self._allowed.get(self._targets[number], {}).get(node.name, frozenset())

    def _disallowed(self, number: int) -> dict[str, set[Result]]:
        """Return the results of a packet with an expected difference that it must not have, by the nodes' names."""
        target = self._targets[number]
        found = {
            name: {result for result in self._results[name][number] if kind_of(target, result) not in allowed}
            for name, allowed in self._allowed.get(target, {}).items()
        }
        return {name: results for name, results in found.items() if results}

    def _cannot_become_equal(self, number: int, count: int) -> bool:
        """Tell whether the results of a packet would stay different in further rounds."""
        different = set[Result]().union(*(results[number] for results in self._results.values()))
        return (count >= _REFUSAL_ROUNDS and self._differs_in_refusals(number)) or (
            count >= _ROUNDS_BY_RESULT * max(2, len(different))
        )

    def _refusals_of(self, number: int) -> list[set[Result]]:
        return [_refusals(results[number]) for results in self._results.values()]

    def _differs_in_refusals(self, number: int) -> bool:
        """Tell whether a packet is refused on one node, and never on another.

        If it is refused at times, as by one of several endpoints, it needs as many rounds as any other result.
        """
        compared = [node for node in self._left if not self._allowed_on(node, number)]
        results = [self._results[node.name][number] for node in (*compared, self._right)]
        is_at_times = any(_refusals(found) not in (found, set()) for found in results)
        return bool(self._disallowed(number)) or (
            not is_at_times and any(_refusals(found) != _refusals(results[-1]) for found in results)
        )

    def _is_answered(self, number: int) -> bool:
        return any(_ANSWERED in result for results in self._results.values() for result in results[number])

    def _comparable(self, node: ParityNode, number: int) -> Results:
        found = self._results[node.name][number]
        has_one_server = self._sticky.get(self._targets[number])
        servers = sum(_ANSWERED in result for result in found)
        if has_one_server is False or (has_one_server and servers == 1):
            return frozenset(_ANY_ENDPOINT if _ANSWERED in result else result for result in found)
        return frozenset(found)

    def disallowed(self) -> Iterator[tuple[Target, str, set[Result]]]:
        """Yield the results that packets with an expected difference must not have, with the names of the nodes."""
        for number, target in enumerate(self._targets):
            yield from ((target, name, results) for name, results in self._disallowed(number).items())

    def mismatches(self, node: ParityNode) -> list[Mismatch]:
        """Return the packets whose results on a node differ from knft's."""
        return [
            Mismatch(target, frozenset(self._results[node.name][number]), frozenset(self._results["knft"][number]))
            for number, target in enumerate(self._targets)
            if self._comparable(node, number) != self._comparable(self._right, number)
        ]

    def strays(self) -> Iterator[str]:
        """Yield the clients with session affinity whose endpoint is none that clients with varying addresses get."""
        numbers = {target: number for number, target in enumerate(self._targets)}
        for target in self._sticky:
            varying = numbers.get(target._replace(source=VARYING))
            if varying is None:
                continue
            of_all = set[Result]().union(*(results[varying] for results in self._results.values()))
            possible = _endpoints(self._targets[varying], of_all)
            for name, results in self._results.items():
                found = _endpoints(target, results[numbers[target]])
                if possible and not found <= possible:
                    yield f"{name}: {target}: {_listed(found)}, but other clients get {_listed(possible)}"


def with_fixed_source(varying: Target, sent: Target, result: Result) -> Result:
    """Return a result in which the address of a client that varies is always the same one."""
    server, is_answer, source = result.partition(_ANSWERED)
    is_own = varying.source == VARYING and is_answer and source == sent.source
    return f"{server}{_ANSWERED}{source_address(varying)}" if is_own else result


def _endpoints(target: Target, results: set[Result]) -> set[str]:
    """Return the endpoints that have answered; for a client outside, also whether they saw its address.

    Proxies may masquerade the varying addresses of a pod, and not its own.
    """
    answers = {result for result in results if _ANSWERED in result}
    if target.client == OUTSIDE:
        return {kind_of(target, result) for result in answers}
    return {result.partition(_ANSWERED)[0] for result in answers}


def _listed(found: set[str]) -> str:
    return " or ".join(sorted(found))


def _refusals(results: set[Result]) -> set[Result]:
    return {result for result in results if _ANSWERED not in result}
