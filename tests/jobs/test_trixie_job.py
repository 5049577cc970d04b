"""``make test-trixie`` counts the tests that ran, checks the library's version, and uses pip's configuration."""

import os
from pathlib import Path

import pytest

from tests.trixie import host
from tests.trixie.__main__ import TESTS, count, main
from tests.trixie.version import OLDEST, numbers

REPORT = """<testsuites><testsuite>
<testcase classname="tests.packets.test_scenarios" name="a"/>
<testcase classname="tests.packets.test_invalid_packets" name="a"/>
<testcase classname="tests.kernel.test_rule_forms" name="b"/>
<testcase classname="tests.sync.test_transactions" name="c"/>
<testcase classname="tests.sync.test_transactions" name="d"><skipped message="no"/></testcase>
<testcase classname="tests.cli.test_render" name="e"><skipped message="no"/></testcase>
</testsuite></testsuites>"""
RAN = {
    "tests/packets/test_scenarios.py": 1,
    "tests/packets/test_invalid_packets.py": 1,
    "tests/kernel": 1,
    "tests/sync": 1,
}


def test_skipped_tests_are_not_counted(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(REPORT)
    assert dict(count(report)) == dict.fromkeys(TESTS, 0) | RAN


@pytest.mark.parametrize(
    ("version", "is_new_enough"), [("1.0.6", False), ("1.0.9", False), ("1.1", True), ("1.1.3", True)]
)
def test_versions_are_compared_as_numbers(version: str, *, is_new_enough: bool) -> None:
    assert (numbers(version) >= OLDEST) is is_new_enough


def test_pip_settings_become_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of pip's configuration file, too; the directory of find-links is shared."""
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[global]\nindex-url = https://index.invalid/simple\nfind-links = {tmp_path}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    variables = host.environment()
    assert variables["PIP_INDEX_URL"] == "https://index.invalid/simple"
    assert variables["PIP_FIND_LINKS"] == str(tmp_path)
    assert str(tmp_path) in host.shared_paths(variables)


def test_name_resolution_files_are_shared() -> None:
    assert "/etc/hosts" in host.shared_paths({"PATH": "/bin", "HOME": "/root"})


def test_missing_root_privilege_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 2, with a one-line message."""
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert main([]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "test-trixie: root directories need privilege: run this as root\n")
