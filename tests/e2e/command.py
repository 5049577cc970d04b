"""The command line that runs upstream's tests. Computes only."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from deploy.programs.build import Programs


class Selection(Struct, frozen=True):
    """The specs to run, as regular expressions of Go."""

    focus: str
    skip: str


class Run(Struct, frozen=True):
    """A run of the tests; ``report`` is the directory of the JUnit reports."""

    selection: Selection
    kubeconfig: str
    report: Path
    processes: int
    nodes: int


def any_of(patterns: Iterable[str]) -> str:
    """Return a regular expression that matches if one of several does."""
    return "|".join(patterns)


def ginkgo_command(programs: Programs, run: Run) -> list[str]:
    """Return the command that runs the selected specs in parallel."""
    return [
        programs.path("ginkgo"),
        f"--procs={run.processes}",
        "--no-color",
        "--timeout=2h",
        f"--focus={run.selection.focus}",
        f"--skip={run.selection.skip}",
        programs.path("e2e.test"),
        "--",
        f"--kubeconfig={run.kubeconfig}",
        # A cluster that no cloud provider manages, and whose nodes have no SSH.
        "--provider=skeleton",
        f"--kubectl-path={programs.path('kubectl')}",
        f"--num-nodes={run.nodes}",
        "--node-os-distro=debian",
        f"--report-dir={run.report}",
        "--disable-log-dump",
    ]
