"""Metrics of a directory of manifests: the files by state, and whether knft keeps rules that it would remove."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class ManifestValues(Struct, frozen=True):
    """The number of files by state, and whether removals wait until files can be read or a user decides."""

    files: Mapping[str, int]
    removals_held: bool


class ManifestCollector(Collector):
    """Reads the values at each scrape."""

    def __init__(self, read_values: Callable[[], ManifestValues]) -> None:
        """Get the values from ``read_values``, which must be thread-safe."""
        self._read_values = read_values

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the current values."""
        values = self._read_values()
        files = GaugeMetricFamily("knft_manifest_files", "Files of manifests by state", labels=("state",))
        for state, count in values.files.items():
            files.add_metric([state], count)
        yield files
        yield GaugeMetricFamily(
            "knft_removals_held",
            "1 while rules stay although no readable manifest requires them",
            value=int(values.removals_held),
        )
