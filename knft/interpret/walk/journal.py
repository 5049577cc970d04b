"""What a walk has learnt about the address that it went to: as long as that is little, it holds for other addresses.

Nearly all packets to the addresses of a large cluster fare alike, but for one protocol and a few ports. A walk that has
only found out whether its address is in this set or that one is a walk to any address of which the same is true.
"""

from typing import NamedTuple, Protocol

from knft.interpret.rules import Element


class Collection(Protocol):
    """A set or a map whose elements can be found."""

    def matching(self, known: dict[int, int]) -> list[Element]:
        """Return the elements that have these numbers at these positions of their keys."""


class Question(NamedTuple):
    """What has been looked up: the numbers known of a key, and the position in it of the destination."""

    collection: Collection
    known: tuple[tuple[int, int], ...]
    position: int

    def answer(self, destination: int) -> bool | None:
        """Return whether a destination is in the collection, None where that is not all that is said of it."""
        known = {position: destination if position == self.position else number for position, number in self.known}
        elements = self.collection.matching(known)
        if not elements:
            return False
        return True if all(len(element.key) == 1 and element.value is None for element in elements) else None


class Journal:
    """The questions of one walk or several, and their answers; ``is_particular`` where more was learnt than that."""

    def __init__(self) -> None:
        """Begin with nothing, and write nothing yet."""
        self._answers: dict[tuple[int, tuple[tuple[int, int], ...], int], tuple[Question, bool]] = {}
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
        return None if self.is_particular else tuple(self._answers.values())

    def ask(self, collection: Collection, known: dict[int, int], position: int, destination: int) -> None:
        """Note that a key with a destination in it was looked up."""
        if not self._writes or self.is_particular:
            return
        numbers = tuple((at, 0 if at == position else number) for at, number in known.items())
        key = id(collection), numbers, position
        if key in self._answers:
            return
        question = Question(collection, numbers, position)
        answer = question.answer(destination)
        if answer is None:
            self.is_particular = True
        else:
            self._answers[key] = question, answer

    def learn(self) -> None:
        """Note that a rule, or something else, is about this one destination."""
        self.is_particular = True
