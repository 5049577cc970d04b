"""What holds for every test."""

import sys

import pytest

# They hold outcomes for tests, and shall say what they found.
pytest.register_assert_rewrite("tests.packets.scene", "tests.packets.traced")

_WITH_LIBRARY = """
A test has made a context of libnftables in the tests' own process: use tests.kernel.nft_process. The library waits with
select(), and aborts a process in which its socket is the 1024th open file or later, as one came to be now and then.
"""


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run in which anything was skipped: a kernel test that cannot run has not passed.

    And one in which a test has brought libnftables into this process, which can end it.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus != pytest.ExitCode.OK:
        return
    if "nftables" in sys.modules:
        reporter.write(_WITH_LIBRARY)
    if reporter.stats.get("skipped") or "nftables" in sys.modules:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
