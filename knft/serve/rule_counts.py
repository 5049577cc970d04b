"""RuleCounts: totals of what the rules of chains count, as the kernel counts it."""

from collections.abc import Collection, Mapping

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.rule_counter import counted_packets
from knft.render.names import TABLE
from knft.sync.lasting_problems import LastingProblems


class RuleCounts:
    """The packets that the rules of chains have counted; one thread reads, any may get the totals.

    A rule begins at 0 when it is written again, so a total grows by the difference between two readings.
    """

    def __init__(self, what: str, chains: Mapping[Family, Collection[str]]) -> None:
        """Start without a reading of ``chains``; ``what`` they count is for the log."""
        self._what, self._chains = what, chains
        self._last: dict[tuple[Family, str], int] = {}
        self._problems = LastingProblems()
        self.totals: Mapping[tuple[Family, str], int] = {}
        """By family and chain, those that have been read."""

    def read(self) -> None:
        """Read all chains; log an error when it begins and when it ends."""
        totals = dict(self.totals)
        for family, chains in self._chains.items():
            problems: dict[str, None] = {}
            for chain in chains:
                try:
                    count = counted_packets(family.number, TABLE, chain)
                except KernelError as error:
                    problems[f"{self._what} are not counted: {error}"] = None
                    continue
                if count is not None:
                    key = (family, chain)
                    last = self._last.get(key, 0)
                    totals[key] = totals.get(key, 0) + (count - last if count >= last else count)
                    self._last[key] = count
            self._problems.update(list(problems), family.value)
        self.totals = totals
