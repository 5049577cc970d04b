"""The cluster of a test job, in a directory of its own."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.cluster.cluster import Cluster
from deploy.cluster.state import State
from deploy.programs.errors import SetupError


@contextmanager
def job_cluster(folder: Path) -> Iterator[tuple[Cluster, Path]]:
    """Yield a cluster, which the block starts, and an empty directory for the report; remove the cluster afterwards.

    What a job that was killed has left is removed before. The logs are kept in the report. Raises SetupError if another
    process uses the directory.
    """
    if os.geteuid() != 0:
        msg = "only root can start a cluster: it makes namespaces and mounts file systems"
        raise SetupError(msg)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"another process uses {folder}: wait for its end, or give another directory"
            raise SetupError(msg) from error
        cluster = Cluster(State(folder / "cluster"), lambda line: print(line, flush=True))
        cluster.down()
        report = folder / "report"
        shutil.rmtree(report, ignore_errors=True)
        report.mkdir()
        try:
            yield cluster, report
        finally:
            if cluster.state.exists:
                shutil.copytree(cluster.state.logs, report / "logs", dirs_exist_ok=True)
            cluster.down()
