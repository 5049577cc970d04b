"""The number of transactions of knft's tables, as ``nft monitor`` reports them."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.lab.namespace import Namespace
from tests.support.nft_process import library_in
from tests.support.waiting import wait_until

_GENERATION = "# new generation "
_CHANGE = re.compile(r"(?:add|insert|replace|delete|destroy) \S+ ip6? knft(?: |$)|W: Received event for an unknown set")
"""A line about knft's tables. nft 1.0.6 cannot print elements of maps with the endpoints of wide Service ports."""
_MARK = "mark-"


class NftMonitor:
    """Runs ``nft monitor`` in a namespace; a context manager, which ends it.

    ``mark`` ends a change with a transaction that creates a table, whose name is the number of the change.
    """

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        """Take the namespace, and a folder for the program's output; nothing runs yet."""
        self._namespace = namespace
        self._library = library_in(namespace)
        self._output = folder / "nft-monitor"
        self._names: list[str] = []

    def __enter__(self) -> Self:
        """Start the program; it reports each transaction from now on."""
        with self._output.open("w") as output:
            self._process = self._namespace.popen(["nft", "monitor"], stdout=output, stderr=subprocess.STDOUT)
        try:
            # nft reads all tables first, and begins again if one has changed meanwhile, as this condition does.
            message = "nft monitor reports nothing"
            wait_until(self._reports_a_new_table, message, self._check_running, interval=0.02, growth=2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the program."""
        self._process.terminate()
        self._process.wait()

    def mark(self, name: str) -> None:
        """Tell that the transactions since the last call belong to this change; an empty name counts for nothing."""
        self._names.append(name)
        self._library.run(f"add table arp {_MARK}{len(self._names)}")

    def counts(self) -> dict[str, int]:
        """Return how many transactions each change has taken in the tables of both families together."""
        last = f"add table arp {_MARK}{len(self._names)}\n"

        def has_last_transaction() -> bool:
            return _GENERATION in self._text().partition(last)[2]

        wait_until(has_last_transaction, "nft monitor does not report the last change", self._check_running)
        found: dict[str, int] = {}
        count = 0
        names = iter(self._names)
        for lines in self._transactions():
            if any(f" {_MARK}" in line for line in lines):
                found[next(names)] = count
                count = 0
            else:
                count += any(map(_CHANGE.match, lines))
        found.pop("", None)
        return found

    def _transactions(self) -> Iterator[list[str]]:
        """Yield the lines of each transaction; each ends with the line of its generation."""
        lines: list[str] = []
        for line in self._text().splitlines():
            if line.startswith(_GENERATION):
                yield lines
                lines = []
            else:
                lines.append(line)

    def _reports_a_new_table(self) -> bool:
        self._library.run("add table arp monitored\ndelete table arp monitored")
        return "monitored" in self._text()

    def _check_running(self) -> None:
        assert self._process.poll() is None, f"nft monitor has ended: {self._text()[-200:]}"

    def _text(self) -> str:
        return self._output.read_text()
