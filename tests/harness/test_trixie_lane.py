"""A run in the root folder counts what ran, tells an old library, and takes pip's settings along."""

import os
from pathlib import Path

import pytest

from tests.trixie import machine
from tests.trixie.__main__ import TESTS, count, main
from tests.trixie.version import OLDEST, numbers

REPORT = """<testsuites><testsuite>
<testcase classname="tests.packets.test_scenarios" name="a"/>
<testcase classname="tests.kernel.test_transactions" name="b"/>
<testcase classname="tests.kernel.test_transactions" name="c"><skipped message="no"/></testcase>
<testcase classname="tests.cli.test_render" name="d"><skipped message="no"/></testcase>
</testsuite></testsuites>"""


def test_what_was_skipped_did_not_run(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(REPORT)
    assert dict(count(report)) == dict(zip(TESTS, (1, 1, 0), strict=True))


@pytest.mark.parametrize(("version", "enough"), [("1.0.6", False), ("1.0.9", False), ("1.1", True), ("1.1.3", True)])
def test_versions_are_compared_as_numbers(version: str, *, enough: bool) -> None:
    assert (numbers(version) >= OLDEST) is enough


def test_settings_of_pip_become_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its file; and a folder of wheels that they name is there in the root folder too."""
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[global]\nindex-url = https://index.invalid/simple\nfind-links = {tmp_path}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    variables = machine.environment()
    assert variables["PIP_INDEX_URL"] == "https://index.invalid/simple"
    assert variables["PIP_FIND_LINKS"] == str(tmp_path)
    assert str(tmp_path) in machine.shared_paths(variables)


def test_name_resolution_is_this_machines() -> None:
    assert "/etc/hosts" in machine.shared_paths({"PATH": "/bin", "HOME": "/root"})


def test_only_root_may(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and status 2; nothing is made."""
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert main([]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "test-trixie: making and entering a root folder takes root: run this as root\n")
