"""Writes the figures of a recorded run into README.md and docs/performance.md.

``python -m tests.cluster.bench.document record`` records the last run of ``make bench-cluster``, and updates both
files. Without ``record`` it only updates them. A test fails if the files differ from the recorded run.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.bench.results import RESULTS_FOLDER, Results
from tests.cluster.bench.figures import (
    BULK_CPU,
    CHANGE_CPU,
    CHANGE_P50,
    MEMORY_SETTLED,
    RESTART_CPU,
    START_CPU,
    Figure,
    shown_figures,
)
from tests.cluster.bench.proxy_names import PROXY_NAMES
from tests.cluster.bench.table import NOTHING, cells, size_text, tables

ROOT = Path(__file__).parents[3]
RESULTS_FILE = "cluster.json"
RECORD = ROOT / "tests" / "bench" / "recorded" / RESULTS_FILE
README, PERFORMANCE = ROOT / "README.md", ROOT / "docs/performance.md"
_BEGIN = "<!-- figures: written by tests/cluster/bench/document.py -->"
_END = "<!-- end of figures -->"
_SMALL, _MIDDLE, _LARGE = "100x10", "1000x10", "10000x10"
_README_ROWS: tuple[tuple[Figure, tuple[str, ...]], ...] = (
    (CHANGE_CPU, (_MIDDLE, _LARGE)),
    (CHANGE_P50, (_MIDDLE, _LARGE)),
    (BULK_CPU, (_MIDDLE, _LARGE)),
    (START_CPU, (_SMALL, _MIDDLE, _LARGE)),
    (RESTART_CPU, (_MIDDLE, _LARGE)),
    (MEMORY_SETTLED, (_SMALL, _MIDDLE, _LARGE)),
)


def recorded() -> Results:
    """Return the recorded run."""
    return msgspec.json.decode(RECORD.read_bytes(), type=Results)


def documents(results: Results) -> dict[Path, str]:
    """Return both files with the figures of a run; the rest of them is unchanged."""
    return {
        README: _with_figures(README.read_text(), readme_lines(results)),
        PERFORMANCE: _with_figures(PERFORMANCE.read_text(), performance_lines(results)),
    }


def readme_lines(results: Results) -> Iterator[str]:
    """Yield a short table."""
    proxies = results.proxies(PROXY_NAMES)
    yield from (
        f"| Services \N{MULTIPLICATION SIGN} endpoints | | {' | '.join(proxies)} |",
        f"| --- | --- |{' --- |' * len(proxies)}",
    )
    for figure, sizes in _README_ROWS:
        for size in sizes:
            shown = tuple(cells(results, figure, size, proxies))
            if set(shown) != {NOTHING} and figure in shown_figures(results, size):
                yield f"| {size_text(size)} | {figure.label}, {figure.unit} | {' | '.join(shown)} |"


def performance_lines(results: Results) -> Iterator[str]:
    """Yield a description of the machine and of its load, and all tables."""
    machine = results.machine
    yield (
        f"Measured on {machine['date']}: {machine['machine']}; Linux {machine['kernel'].partition('-')[0]}; "
        f"{machine['software']}; Kubernetes {machine['Kubernetes']}. Load averages (1, 5, 15 minutes) at the start: "
        f"{machine['load at the start']}; at the end: {machine['load at the end']}."
    )
    yield ""
    yield from tables(results)


def _with_figures(text: str, lines: Iterator[str]) -> str:
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return "\n".join([before + _BEGIN, "", *lines, "", _END + after]).replace("\n\n\n", "\n\n")


def main() -> None:
    """Record the last run if told so, and write the figures of the recorded run."""
    if sys.argv[1:] == ["record"]:
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_bytes((RESULTS_FOLDER / RESULTS_FILE).read_bytes())
    for path, text in documents(recorded()).items():
        path.write_text(text)


if __name__ == "__main__":
    main()
