"""The modules that ``knft run`` imports with an API server until a change is in force: each costs CPU time and memory.

imported_modules.txt lists those of the daemon and worker_modules.txt those of its worker process: all modules of knft
and of the standard library, without private ones, and of other packages the first part of the names. If a test fails,
import the module when it is used, or add it to the list if each start needs it.

The lists are those of Python 3.11, where those of the standard library are exact: a new version of click or urllib3 may
need another entry. Other versions of Python divide packages of the standard library differently: there the tests notice
new packages, and more modules than MOST_MODULES. They do not notice entries that no start imports any more, except
those of knft.
"""

import sys
from pathlib import Path

import pytest

from tests.apiserver.kubeconfigs import write_in_cluster_files
from tests.support.api_server_knft import NODE, ApiServerKnft
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.cluster import endpoint_slice, node, service
from tests.support.fake_api.server import FakeApiServer
from tests.support.import_log import ImportLog
from tests.support.lab.namespace import Namespace
from tests.support.pod_environment import pod_prefix
from tests.support.processes import worker_processes

pytestmark = pytest.mark.kernel

FOLDER = Path(__file__).parent
LISTED_PYTHON = (3, 11)
IN_OTHER_PYTHONS = {"glob", "grp", "pwd"}
"""Modules that pathlib of Python 3.13 imports."""
WITH_CONFIGURATION_FILE = {
    "importlib.readers",
    "importlib.resources.readers",
    "knft.configuration.file_parsing",
    "knft.configuration.schema",
    "knft.configuration.schema_match",
}
ROOM = 10
"""For other versions of Python, click, urllib3 and the like. Python 3.13 has one module more with a configuration file,
and one less in the worker process."""
MOST_MODULES = {"daemon": 568 + ROOM, "worker": 74 + ROOM}
MOST_WITH_CONFIGURATION_FILE = {"daemon": 574 + ROOM, "worker": 74 + ROOM}
CONFIGURATION = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0, tcpCloseWaitTimeout: 0s}
"""


def _package(module: str) -> str:
    return module.partition(".")[0]


def _is_public(module: str) -> bool:
    return not any(part.startswith("_") for part in module.split("."))


def _check(found: set[str], file: str, more: set[str]) -> None:
    listed = set((FOLDER / file).read_text().split()) | more
    own = {module for module in found if _package(module) == "knft"}
    assert own == {module for module in listed if _package(module) == "knft"}
    others = set(filter(_is_public, found - own))
    if sys.version_info[:2] != LISTED_PYTHON:
        others -= IN_OTHER_PYTHONS
    assert set(map(_package, others)) <= set(map(_package, listed))
    if sys.version_info[:2] == LISTED_PYTHON:
        assert {module for module in others if _package(module) in sys.stdlib_module_names} <= listed


def _check_both(found: dict[str, set[str]], most: dict[str, int], more: set[str]) -> None:
    _check(found["daemon"], "imported_modules.txt", more)
    _check(found["worker"], "worker_modules.txt", set())
    packages = set(map(_package, found["worker"])) - sys.stdlib_module_names - {"__main__"}
    assert packages == {"knft", "nftables"}
    assert {name: len(modules) for name, modules in found.items() if len(modules) > most[name]} == {}


def _start(
    namespace: Namespace, server: FakeApiServer, folder: Path, *flags: str, pod: tuple[str, ...] = ()
) -> dict[str, set[str]]:
    """Run knft until a change is in force; return the modules that the daemon and its worker process have imported."""
    imports = ImportLog(folder / "imports")
    before = (*pod, *imports.prefix)
    knft = ApiServerKnft(namespace, server, folder, "--min-sync-period=0", *flags, before=before, in_pod=bool(pod))
    knft.wait_until_programmed()
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.6"))
    knft.wait_until(lambda: knft.table_contains("10.244.1.6"))
    (worker,) = worker_processes(knft.process.pid)
    return {"daemon": imports.modules(knft.process.pid), "worker": imports.modules(worker)}


def _start_in_pod(
    namespace: Namespace, authority: CertificateAuthority, folder: Path, *flags: str
) -> dict[str, set[str]]:
    """Run knft with a pod's ServiceAccount, without a kubeconfig, against an API server that has TLS."""
    with namespace.entered():
        server = FakeApiServer(tls=authority.server())
    with server:
        server.required_bearer = "token-of-the-pod"
        server.cluster.put("nodes", node(NODE, "192.0.2.11"))
        server.cluster.put("services", service("web", 7))
        server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.5"))
        volume = folder / "volume"
        volume.mkdir()
        write_in_cluster_files(volume, server, authority, server.required_bearer)
        return _start(namespace, server, folder, *flags, pod=pod_prefix(volume, server.server_port))


def _configuration_flag(folder: Path, text: str = "") -> str:
    file = folder / "config.yaml"
    file.write_text(CONFIGURATION + text)
    return f"--config={file}"


def test_daemon_and_worker_import_the_listed_modules(
    namespace: Namespace, server: FakeApiServer, tmp_path: Path
) -> None:
    _check_both(_start(namespace, server, tmp_path), MOST_MODULES, set())


def test_configuration_file_needs_no_jsonschema(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    """As in the benchmark: YAML is read, and the file is checked against the schema without jsonschema."""
    flag = _configuration_flag(tmp_path, f"clientConnection: {{kubeconfig: {tmp_path / 'kubeconfig'}}}\n")
    _check_both(_start(namespace, server, tmp_path, flag), MOST_WITH_CONFIGURATION_FILE, WITH_CONFIGURATION_FILE)


def test_service_account_of_a_pod_needs_no_other_modules(
    namespace: Namespace, authority: CertificateAuthority, tmp_path: Path
) -> None:
    _check_both(_start_in_pod(namespace, authority, tmp_path), MOST_MODULES, set())


def test_pod_with_a_configuration_file_needs_no_other_modules(
    namespace: Namespace, authority: CertificateAuthority, tmp_path: Path
) -> None:
    """As in the DaemonSet."""
    found = _start_in_pod(namespace, authority, tmp_path, _configuration_flag(tmp_path))
    _check_both(found, MOST_WITH_CONFIGURATION_FILE, WITH_CONFIGURATION_FILE)
