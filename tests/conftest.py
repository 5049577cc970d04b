"""Settings for all tests: Hypothesis uses the same examples in every run, and a run with a skipped test fails."""

import os
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# pytest rewrites assertions of these helpers too, so that failures show values.
pytest.register_assert_rewrite(
    "tests.support.used_endpoints",
    "tests.packets.connected_clients",
    "tests.support.packets.modes",
    "tests.support.packets.scenario_runner",
    "tests.support.trace_check",
)

# "make test" uses the same examples in every run, on fast and slow machines. "make explore" uses random examples.
settings.register_profile(
    "gate", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))

_WITH_LIBRARY = """
A test loaded libnftables into pytest's process: use tests.support.nft_process. The library waits with
select(), and aborts a process in which its socket is the 1024th open file or later.
"""


class _LibraryCheck:
    """Whether any process of this run loaded libnftables: pytest's own, or a worker of pytest-xdist."""

    def __init__(self) -> None:
        self.is_loaded = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Record whether a worker loaded libnftables."""
        self.is_loaded |= bool(getattr(node, "workeroutput", {}).get("has_libnftables"))


def pytest_configure(config: pytest.Config) -> None:
    """Register the check that no test loads libnftables."""
    config.pluginmanager.register(_LibraryCheck(), "library-check")


LONG_FILES = frozenset({
    "tests/apiserver/test_blocked_neighbours.py",
    "tests/configuration/test_round_trip.py",
    "tests/interpret/compare/test_random_clusters_equal.py",
    "tests/interpret/compare/test_shared_results.py",
    "tests/interpret/compare/test_traced_examples.py",
    "tests/interpret/service_model/test_random_clusters.py",
    "tests/mutation/test_mutants.py",
    "tests/packets/test_kill_and_restart.py",
    "tests/packets/test_manifest_mistakes.py",
    "tests/packets/test_no_connection_lost.py",
    "tests/sync/test_histories.py",
})  # fmt: skip
"""Files with tests that take 20 s or more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark property tests, and run long tests first, so that no process waits for a long one at the end.

    Tests that run Hypothesis inside a test are marked where they are.
    """
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
    items.sort(key=lambda item: item.nodeid.partition("::")[0] not in LONG_FILES)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name sets by their sorted elements: workers have to collect equal names, and the order of a set varies."""
    if isinstance(val, set | frozenset):
        return "{" + ", ".join(sorted(map(str, val))) + "}"
    return None


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that skipped a test (a kernel test that cannot run has not passed) or that loaded libnftables."""
    check = session.config.pluginmanager.get_plugin("library-check")
    assert isinstance(check, _LibraryCheck)
    check.is_loaded |= "nftables" in sys.modules
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["has_libnftables"] = check.is_loaded
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus != pytest.ExitCode.OK:
        return
    if check.is_loaded:
        reporter.write(_WITH_LIBRARY)
    if reporter.stats.get("skipped") or check.is_loaded:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
