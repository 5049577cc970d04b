"""Records which properties of the destination address a walk depends on, so that its result can be reused.

For most destinations only a few ports of one protocol have a different outcome. If a walk only depends on whether its
destination is in certain sets, its result also holds for every other destination for which the same is true.
"""

from typing import NamedTuple, Protocol

from knft.interpret.ranges import Ranges, contains


class DestinationQuery(Protocol):
    """A query about a destination; implementations are hashable and compare by value."""

    def answer(self, destination: int, ports: Ranges) -> bool | None:
        """Return the answer for a destination and packets to some ports.

        None means that a rule tests this destination alone, so its result cannot be reused for other destinations.
        """

    def __hash__(self) -> int:
        """Return the same hash for equal queries."""


class RangesQuery(NamedTuple):
    """Query: is the destination in the ranges."""

    ranges: Ranges

    def answer(self, destination: int, _: Ranges) -> bool | None:
        """Return whether the destination is in the ranges."""
        return contains(self.ranges, destination)


class DependencyRecorder:
    """Records the queries of one or several walks and their answers.

    ``is_destination_specific`` tells whether the result holds for one destination alone.
    """

    def __init__(self) -> None:
        """Create a recorder that is not recording."""
        self._answers: dict[DestinationQuery, bool] = {}
        self._is_recording = False
        self.is_destination_specific = False

    def start(self) -> None:
        """Clear the recorder and start recording."""
        self._answers = {}
        self._is_recording = True
        self.is_destination_specific = False

    def stop(self) -> tuple[tuple[DestinationQuery, bool], ...] | None:
        """Stop recording; return the queries and their answers, or None if the walk is destination-specific."""
        self._is_recording = False
        return None if self.is_destination_specific else tuple(self._answers.items())

    def record(self, query: DestinationQuery, destination: int, ports: Ranges) -> None:
        """Record a query of the walk.

        The walk can repeat a query for other ports or for an endpoint. If the answers differ, the result holds for
        this destination alone.
        """
        if not self._is_recording or self.is_destination_specific:
            return
        answer = query.answer(destination, ports)
        if answer is None or self._answers.get(query, answer) is not answer:
            self.is_destination_specific = True
        else:
            self._answers[query] = answer
