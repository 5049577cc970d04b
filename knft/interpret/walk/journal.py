"""What a walk has learnt about the address that it went to: as long as that is little, it holds for other addresses.

Nearly all packets to the addresses of a large cluster fare alike, but for one protocol and a few ports. A walk that has
only found out whether its address is in this set or that one is a walk to any address of which the same is true.
"""

from typing import NamedTuple, Protocol

from knft.interpret.ranges import Ranges, contains


class Question(Protocol):
    """Something that was asked about a destination; equal questions are the same question."""

    def answer(self, destination: int, ports: Ranges) -> bool | None:
        """Return what is so of another destination, for packets to some ports.

        None means that it has something of its own there: then nothing is known of its packets.
        """

    def __hash__(self) -> int:
        """Return what equal questions have alike."""


class InRanges(NamedTuple):
    """The question whether a destination is in some ranges."""

    ranges: Ranges

    def answer(self, destination: int, _: Ranges) -> bool | None:
        """Return whether it is."""
        return contains(self.ranges, destination)


class Journal:
    """The questions of one walk or several, and their answers; ``is_particular`` where more was learnt than that."""

    def __init__(self) -> None:
        """Begin with nothing, and write nothing yet."""
        self._answers: dict[Question, bool] = {}
        self._writes = False
        self.is_particular = False

    def begin(self) -> None:
        """Forget what was learnt, and write from now on."""
        self._answers = {}
        self._writes = True
        self.is_particular = False

    def end(self) -> tuple[tuple[Question, bool], ...] | None:
        """Write no more; return the questions and answers, or None where more was learnt than these."""
        self._writes = False
        return None if self.is_particular else tuple(self._answers.items())

    def note(self, question: Question, destination: int, ports: Ranges) -> None:
        """Note that something was asked.

        The same may be asked again about other ports, or about an endpoint: only where it is answered alike each time
        is the answer one about the destination.
        """
        if not self._writes or self.is_particular:
            return
        answer = question.answer(destination, ports)
        if answer is None or self._answers.get(question, answer) is not answer:
            self.is_particular = True
        else:
            self._answers[question] = answer
