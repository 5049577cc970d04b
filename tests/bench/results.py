"""The results of a run: its records, with lookups."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

from tests.bench.record import ENDED, Record

RESULTS_FOLDER = Path(__file__).with_name("results")
"""The default folder of all results."""


class Results(Struct, frozen=True):
    """The records of a run, and a description of its machine."""

    machine: dict[str, str]
    records: tuple[Record, ...]

    def value(self, proxy: str, shape: str, measure: str, name: str) -> float | None:
        """Return a value, the median if it was measured several times, None if it was not."""
        found = self.samples(proxy, shape, measure, name)
        return median(found) if found else None

    def samples(self, proxy: str, shape: str, measure: str, name: str) -> list[float]:
        """Return a value of each record that has it, in the order of measurement."""
        return [
            record.values[name]
            for record in self.records
            if (record.proxy, record.shape, record.measure) == (proxy, shape, measure) and name in record.values
        ]

    def note(self, proxy: str, shape: str) -> str:
        """Return why a case has no values, or only some."""
        found = (item for item in self.records if (item.proxy, item.shape, item.measure) == (proxy, shape, ENDED))
        return next((item.note for item in found), "")

    def shapes(self) -> tuple[str, ...]:
        """Return the names of clusters in the order of measurement."""
        return tuple(dict.fromkeys(record.shape for record in self.records))

    def proxies(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of ``names`` that were measured."""
        found = {record.proxy for record in self.records}
        return tuple(name for name in names if name in found)
