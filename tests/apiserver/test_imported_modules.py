"""The modules that ``knft run`` imports with an API server until a change is in force: each costs CPU time and memory.

imported_modules.txt lists all modules of knft, and of other packages the first part of the names. If this test fails,
import the module when it is used, or add it to the list if each start needs it.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.api_server_knft import ApiServerKnft
from tests.support.fake_api.cluster import endpoint_slice
from tests.support.fake_api.server import FakeApiServer
from tests.support.import_log import ImportLog
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

LISTED = set(Path(__file__).with_name("imported_modules.txt").read_text().split())


def test_daemon_imports_the_listed_modules(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> None:
    imports = ImportLog(tmp_path / "imports")
    knft = ApiServerKnft(namespace, server, tmp_path, "--min-sync-period=0", before=imports.prefix)
    knft.wait_until_programmed()
    server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.6"))
    knft.wait_until(lambda: knft.table_contains("10.244.1.6"))
    found = imports.modules(knft.process.pid)
    own = {module for module in found if module.partition(".")[0] == "knft"}
    assert own == {module for module in LISTED if module.partition(".")[0] == "knft"}
    others = {module.partition(".")[0] for module in found - own}
    # Not those that a package tries to import and that do not exist, nor private ones of the standard library, which
    # differ between versions of Python.
    assert {module for module in others if not module.startswith("_") and find_spec(module)} <= LISTED
