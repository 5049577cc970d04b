"""Sends each packet on all nodes until the same servers have answered, and returns the packets that differ.

An endpoint is chosen at random, so a packet's results are the set of the results of many connections. A Service with
session affinity has one result for each client, which may be another on each node.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.parity.dial import Result, Target, dial_all
from tests.parity.nodes import ParityNode

Results = frozenset[Result]
"""All results of one packet, sent several times."""
_MIN_ROUNDS = 5
_MAX_ROUNDS = 250
_ROUNDS_BY_RESULT = 25
"""Rounds for each different result, after which all have been seen: one is missed with probability e^-25."""
_REFUSAL_ROUNDS = 8
"""Rounds after which a packet that is refused on one node only is sent again with a longer timeout."""
_DROP_TIMEOUTS = (0.15, 1.0, 3.0)
"""Seconds without an answer that count as a drop: a packet differs only if it does with the longest time too."""
_ANY_SERVER = "one server for each client"


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
        self, left: Sequence[ParityNode], right: ParityNode, targets: Sequence[Target], sticky: Mapping[Target, bool]
    ) -> None:
        """Send nothing yet; ``sticky`` tells for packets to Services with affinity whether a client has one server."""
        self._left, self._right = tuple(left), right
        self._nodes = (*left, right)
        self._targets = targets
        self._sticky = sticky
        self._results: dict[str, list[set[Result]]] = {node.name: [set() for _ in targets] for node in self._nodes}

    def observe(self, may_differ: Callable[[ParityNode, Target], bool]) -> None:
        """Send packets until each has equal results on all nodes, except where ``may_differ``, or up to the limits."""
        pending = list(range(len(self._targets)))
        for drop_timeout in _DROP_TIMEOUTS:
            for number in pending:
                for results in self._results.values():
                    results[number].clear()
            unequal = self._dial_until_equal(pending, drop_timeout, may_differ)
            # If all packets were answered, a longer timeout does not change the results.
            pending = [number for number in unequal if any(self._refusals_of(number))]

    def _dial_until_equal(
        self, pending: list[int], drop_timeout: float, may_differ: Callable[[ParityNode, Target], bool]
    ) -> list[int]:
        unequal: list[int] = []
        # With a longer timeout each packet is sent several times at once, because every drop costs this time.
        at_once = 1 if drop_timeout == _DROP_TIMEOUTS[0] else _REFUSAL_ROUNDS
        for count in range(at_once, _MAX_ROUNDS + 1, at_once):
            if not pending:
                break
            self._dial(pending * at_once, drop_timeout)
            rest = []
            for number in pending:
                if self._is_equal(number, may_differ):
                    if count < _MIN_ROUNDS and self._is_answered(number):
                        rest.append(number)
                elif self._cannot_become_equal(number, count, may_differ):
                    unequal.append(number)
                else:
                    rest.append(number)
            pending = rest
        return [*unequal, *pending]

    def _dial(self, numbers: Sequence[int], drop_timeout: float) -> None:
        targets = [self._targets[number] for number in numbers]
        with ThreadPoolExecutor(len(self._nodes)) as threads:
            found = list(threads.map(lambda node: dial_all(node.lab, targets, drop_timeout), self._nodes))
        for node, results in zip(self._nodes, found, strict=True):
            for number, result in zip(numbers, results, strict=True):
                self._results[node.name][number].add(result)

    def _is_equal(self, number: int, may_differ: Callable[[ParityNode, Target], bool]) -> bool:
        expected = self._comparable(self._right, number)
        return all(
            self._comparable(node, number) == expected or may_differ(node, self._targets[number]) for node in self._left
        )

    def _cannot_become_equal(self, number: int, count: int, may_differ: Callable[[ParityNode, Target], bool]) -> bool:
        """Tell whether the results of a packet would stay different in further rounds."""
        different = set[Result]().union(*(results[number] for results in self._results.values()))
        return (count >= _REFUSAL_ROUNDS and self._differs_in_refusals(number, may_differ)) or (
            count >= _ROUNDS_BY_RESULT * max(2, len(different))
        )

    def _refusals_of(self, number: int) -> list[set[Result]]:
        return [_refusals(results[number]) for results in self._results.values()]

    def _differs_in_refusals(self, number: int, may_differ: Callable[[ParityNode, Target], bool]) -> bool:
        expected = _refusals(self._results[self._right.name][number])
        return any(
            _refusals(self._results[node.name][number]) != expected
            for node in self._left
            if not may_differ(node, self._targets[number])
        )

    def _is_answered(self, number: int) -> bool:
        return any(" from " in result for results in self._results.values() for result in results[number])

    def _comparable(self, node: ParityNode, number: int) -> Results:
        found = self._results[node.name][number]
        has_one_server = self._sticky.get(self._targets[number])
        servers = sum(" from " in result for result in found)
        if has_one_server is False or (has_one_server and servers == 1):
            return frozenset(_ANY_SERVER if " from " in result else result for result in found)
        return frozenset(found)

    def mismatches(self, node: ParityNode) -> list[Mismatch]:
        """Return the packets whose results on a node differ from knft's."""
        return [
            Mismatch(target, frozenset(self._results[node.name][number]), frozenset(self._results["knft"][number]))
            for number, target in enumerate(self._targets)
            if self._comparable(node, number) != self._comparable(self._right, number)
        ]


def _refusals(results: set[Result]) -> set[Result]:
    return {result for result in results if " from " not in result}
