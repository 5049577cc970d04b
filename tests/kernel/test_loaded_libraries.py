"""The daemon and its worker process load only the packages that they need; only the worker loads libnftables.

See docs/design/worker-process.md#licences.
"""

import re
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.import_log import ImportLog
from tests.support.knft_run import KnftRun
from tests.support.lab.namespace import Namespace
from tests.support.processes import worker_processes

pytestmark = pytest.mark.kernel

BINDING = {"nftables", "knft.kernel.libnftables"}
DAEMON_PACKAGES = {"click", "msgspec", "prometheus_client", "urllib3", "watchfiles", "yaml"}
WORKER_PACKAGES = {"nftables"}
"""The packages of pyproject.toml that are loaded; the others would only cost CPU time and memory at each start."""
REQUIRED = {re.split(r"[^\w-]", required)[0].lower() for required in metadata.requires("knft") or ()}
DEPENDENCIES = {
    module
    for module, distributions in metadata.packages_distributions().items()
    if not module.startswith("_") and REQUIRED.intersection(name.lower().replace("_", "-") for name in distributions)
}


def _packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules} & DEPENDENCIES


def test_only_needed_packages_are_loaded(namespace: Namespace, tmp_path: Path) -> None:
    """The daemon and its worker process have synced a Service and a change of it."""
    imports = ImportLog(tmp_path / "imports")
    with KnftRun(namespace, tmp_path, before=imports.prefix) as knft:
        knft.write_service(2)
        knft.wait_until(lambda: knft.has_cluster_ip(2))
        daemon = knft.process.pid
        (worker,) = worker_processes(daemon)
        modules = {pid: imports.modules(pid) for pid in (daemon, worker)}
        maps = {pid: Path(f"/proc/{pid}/maps").read_text() for pid in (daemon, worker)}
    assert _packages(modules[daemon]) == DAEMON_PACKAGES
    assert _packages(modules[worker]) == WORKER_PACKAGES
    assert "libnftables" not in maps[daemon]
    assert "libnftables" in maps[worker]
    assert "knft.kernel.process" in modules[daemon]
    assert not modules[daemon] & (BINDING | {"knft.kernel.worker"})
    assert modules[worker] >= BINDING
    assert not [name for name in modules[daemon] | modules[worker] if "preflight" in name]
