"""An editable capture of iptables-save."""

import re
from collections.abc import Callable
from typing import NamedTuple

_SERVICE = re.compile(r"\b(shop/[a-z]+:[a-z]+)")
_CHAIN = re.compile(r"KUBE-(?:SVC|SVL|EXT|FW|SEP)-[A-Z2-7]{16}")


class RuleLine(NamedTuple):
    """A rule: its table, the position of its line in the table, and its text."""

    table: str
    position: int
    text: str

    @property
    def chain(self) -> str:
        """Its chain."""
        return self.text.split()[1]

    @property
    def target(self) -> str:
        """Its chain or target after ``-j``."""
        words = self.text.split()
        return words[words.index("-j") + 1] if "-j" in words else ""


class IptablesSave:
    """A capture; a RuleLine is valid until a line is inserted or removed."""

    def __init__(self, text: str) -> None:
        """Read a capture."""
        self._tables: dict[str, list[str]] = {}
        for line in text.splitlines():
            if line.startswith("*"):
                lines = self._tables[line[1:]] = []
            elif line != "COMMIT" and not line.startswith("#"):
                lines.append(line)
        self._owners = self._find_owners()

    def text(self) -> str:
        """Return the edited capture."""
        parts = (f"*{name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in self._tables.items())
        return "".join(f"{part}COMMIT\n" for part in parts)

    def find(self, table: str, chain: str, has: str = "", lacks: str = "\0") -> list[RuleLine]:
        """Return the rules of a chain, or of a prefix with ``*``, that match ``has`` and not ``lacks``."""
        return [
            place
            for place in self._rules(table)
            if _chain_matches(place.chain, chain) and re.search(has, place.text) and not re.search(lacks, place.text)
        ]

    def _rules(self, table: str) -> list[RuleLine]:
        lines = self._tables.get(table, [])
        return [RuleLine(table, number, line) for number, line in enumerate(lines) if line.startswith("-A ")]

    def line_of(self, text: str) -> int:
        """Return the line number of a rule in the whole capture."""
        return self.text().split("\n").index(text) + 1

    def remove(self, *places: RuleLine) -> None:
        """Remove rules."""
        for place in sorted(places, key=lambda place: -place.position):
            del self._tables[place.table][place.position]

    def replace(self, place: RuleLine, text: str) -> None:
        """Replace a rule."""
        assert text != place.text, f"nothing changes: {text}"
        self._tables[place.table][place.position] = text

    def insert(self, place: RuleLine, *texts: str) -> None:
        """Insert rules before one."""
        self._tables[place.table][place.position : place.position] = texts

    def append(self, place: RuleLine, *texts: str) -> None:
        """Insert rules after one."""
        self._tables[place.table][place.position + 1 : place.position + 1] = texts

    def declare(self, table: str, chain: str, policy: str = "-") -> None:
        """Declare a chain, and its table if necessary."""
        self._tables.setdefault(table, []).insert(0, f":{chain} {policy} [0:0]")

    def swap(self, one: RuleLine, other: RuleLine) -> None:
        """Swap two rules."""
        self._tables[one.table][one.position], self._tables[other.table][other.position] = other.text, one.text

    def edit_lines(self, change: Callable[[str], str]) -> None:
        """Apply a change to every line."""
        for name, lines in self._tables.items():
            self._tables[name] = [change(line) for line in lines]

    def chains(self, table: str, beginning: str) -> list[str]:
        """Return the chains whose names have a prefix."""
        names = (line[1:].split()[0] for line in self._tables[table] if line.startswith(":"))
        return [name for name in names if name.startswith(beginning)]

    def service_of_rule(self, place: RuleLine) -> str:
        """Return the Service port of a rule."""
        found = _SERVICE.search(place.text)
        if found is not None:
            return found[1]
        return next(self._owners[name] for name in _CHAIN.findall(place.text))

    def service_of_chain(self, chain: str) -> str:
        """Return the Service port of a chain."""
        return self._owners[chain]

    def _find_owners(self) -> dict[str, str]:
        """Return the Service port of each chain, from the comments of its rules or of the rules that jump to it."""
        owners: dict[str, str] = {}
        for place in self._rules("nat"):
            named = _SERVICE.search(place.text)
            if named is not None:
                for chain in _CHAIN.findall(place.text):
                    owners.setdefault(chain, named[1])
        return owners


def _chain_matches(chain: str, pattern: str) -> bool:
    return chain.startswith(pattern[:-1]) if pattern.endswith("*") else chain == pattern
