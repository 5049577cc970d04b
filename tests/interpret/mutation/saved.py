"""What iptables-save printed, as lines that can be taken away, changed and put elsewhere."""

import re
from collections.abc import Callable
from typing import NamedTuple

_SERVICE = re.compile(r"\b(shop/[a-z]+:[a-z]+)")
_CHAIN = re.compile(r"KUBE-(?:SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16}")


class Place(NamedTuple):
    """A rule: its table, which line of it, and its text."""

    table: str
    at: int
    text: str

    @property
    def chain(self) -> str:
        """The chain that it is in."""
        return self.text.split()[1]

    @property
    def target(self) -> str:
        """The chain or target that it leads to."""
        words = self.text.split()
        return words[words.index("-j") + 1] if "-j" in words else ""


class Saved:
    """One capture; places are good until a line is put in or taken away."""

    def __init__(self, text: str) -> None:
        """Read a capture."""
        self._tables: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line.startswith("*"):
                lines = self._tables[line[1:]] = []
            elif line != "COMMIT" and not line.startswith("#"):
                lines.append(line)
        self._owners = self._owned()

    def text(self) -> str:
        """Return the capture as it is now."""
        parts = (f"*{name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in self._tables.items())
        return "".join(f"{part}COMMIT\n" for part in parts)

    def find(self, table: str, chain: str, has: str = "", lacks: str = "\0") -> list[Place]:
        """Return the rules of a chain, or of all whose names so begin where it ends in ``*``, that match ``has``."""
        return [
            place
            for place in self._rules(table)
            if _is_named(place.chain, chain) and re.search(has, place.text) and not re.search(lacks, place.text)
        ]

    def _rules(self, table: str) -> list[Place]:
        lines = self._tables.get(table, [])
        return [Place(table, number, line) for number, line in enumerate(lines) if line.startswith("-A ")]

    def line_of(self, text: str) -> int:
        """Return the line of the whole capture in which a rule is."""
        return self.text().split("\n").index(text) + 1

    def remove(self, *places: Place) -> None:
        """Take rules away."""
        for place in sorted(places, key=lambda place: -place.at):
            del self._tables[place.table][place.at]

    def replace(self, place: Place, text: str) -> None:
        """Put another rule in the place of one."""
        assert text != place.text, f"nothing changes: {text}"
        self._tables[place.table][place.at] = text

    def insert(self, place: Place, *texts: str) -> None:
        """Put rules in front of one."""
        self._tables[place.table][place.at : place.at] = texts

    def append(self, place: Place, *texts: str) -> None:
        """Put rules right after one."""
        self._tables[place.table][place.at + 1 : place.at + 1] = texts

    def declare(self, table: str, chain: str, policy: str = "-") -> None:
        """Make a chain, or a whole table where it is the first of one."""
        self._tables.setdefault(table, []).insert(0, f":{chain} {policy} [0:0]")

    def swap(self, one: Place, other: Place) -> None:
        """Have two rules change places."""
        self._tables[one.table][one.at], self._tables[other.table][other.at] = other.text, one.text

    def each(self, change: Callable[[str], str]) -> None:
        """Change every line."""
        for name, lines in self._tables.items():
            self._tables[name] = [change(line) for line in lines]

    def chains(self, table: str, beginning: str) -> list[str]:
        """Return the chains whose names so begin."""
        names = (line[1:].split()[0] for line in self._tables[table] if line.startswith(":"))
        return [name for name in names if name.startswith(beginning)]

    def service(self, place: Place) -> str:
        """Return the Service port that a rule is about."""
        found = _SERVICE.search(place.text)
        if found is not None:
            return found[1]
        return next(self._owners[name] for name in _CHAIN.findall(place.text))

    def owner(self, chain: str) -> str:
        """Return the Service port whose chain it is."""
        return self._owners[chain]

    def _owned(self) -> dict[str, str]:
        """Return whose each chain is: a Service port's, as its own rules or those that lead to it say."""
        owners: dict[str, str] = {}
        for place in self._rules("nat"):
            named = _SERVICE.search(place.text)
            if named is not None:
                for chain in _CHAIN.findall(place.text):
                    owners.setdefault(chain, named[1])
        return owners


def _is_named(chain: str, pattern: str) -> bool:
    return chain.startswith(pattern[:-1]) if pattern.endswith("*") else chain == pattern
