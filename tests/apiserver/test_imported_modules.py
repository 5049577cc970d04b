"""The modules that ``knft run`` imports with an API server until a change is in force: each costs CPU time and memory.

imported_modules.txt lists those of the daemon and worker_modules.txt those of its worker process: all modules of knft,
and of other packages the first part of the names. If a test fails, import the module when it is used, or add it to the
list if each start needs it.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.api_server_knft import ApiServerKnft
from tests.support.fake_api.cluster import endpoint_slice
from tests.support.fake_api.server import FakeApiServer
from tests.support.import_log import ImportLog
from tests.support.lab.namespace import Namespace
from tests.support.processes import worker_processes

pytestmark = pytest.mark.kernel

FOLDER = Path(__file__).parent
WITH_CONFIGURATION_FILE = {
    "knft.configuration.file_parsing",
    "knft.configuration.schema",
    "knft.configuration.schema_match",
}
MOST_MODULES = {"daemon": 585, "worker": 78}
"""Python 3.11 has 573 and 72, of which some are private to the standard library."""
CONFIGURATION = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {{kubeconfig: {kubeconfig}}}
conntrack: {{maxPerCore: 0, tcpCloseWaitTimeout: 0s}}
"""


def _listed(name: str) -> set[str]:
    return set((FOLDER / name).read_text().split())


def _check(found: set[str], listed: set[str]) -> None:
    own = {module for module in found if _package(module) == "knft"}
    assert own == {module for module in listed if _package(module) == "knft"}
    others = {_package(module) for module in found - own}
    # Not those that a package tries to import and that do not exist, nor private ones of the standard library, which
    # differ between versions of Python.
    assert {module for module in others if not module.startswith("_") and find_spec(module)} <= listed


def _package(module: str) -> str:
    return module.partition(".")[0]


def _start(namespace: Namespace, server: FakeApiServer, folder: Path, *flags: str) -> dict[str, set[str]]:
    """Run knft until a change is in force; return the modules that the daemon and its worker process have imported."""
    imports = ImportLog(folder / "imports")
    knft = ApiServerKnft(namespace, server, folder, "--min-sync-period=0", *flags, before=imports.prefix)
    knft.wait_until_programmed()
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.6"))
    knft.wait_until(lambda: knft.table_contains("10.244.1.6"))
    (worker,) = worker_processes(knft.process.pid)
    return {"daemon": imports.modules(knft.process.pid), "worker": imports.modules(worker)}


def test_daemon_and_worker_import_the_listed_modules(
    namespace: Namespace, server: FakeApiServer, tmp_path: Path
) -> None:
    found = _start(namespace, server, tmp_path)
    _check(found["daemon"], _listed("imported_modules.txt"))
    _check(found["worker"], _listed("worker_modules.txt"))
    packages = set(map(_package, found["worker"])) - sys.stdlib_module_names - {"__main__"}
    assert set(filter(find_spec, packages)) == {"knft", "nftables"}
    # The lists have only the first part of the names of other packages, which have more modules that could be imported.
    assert {name: len(modules) for name, modules in found.items() if len(modules) > MOST_MODULES[name]} == {}


def test_configuration_file_needs_no_jsonschema(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    """As in the DaemonSet: YAML is read, and the file is checked against the schema without jsonschema."""
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION.format(kubeconfig=tmp_path / "kubeconfig"))
    found = _start(namespace, server, tmp_path, f"--config={file}")
    _check(found["daemon"], _listed("imported_modules.txt") | WITH_CONFIGURATION_FILE)
