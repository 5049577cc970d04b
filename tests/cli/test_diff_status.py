"""The exit status of ``knft diff`` if nothing was compared."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from knft.cli.commands import cli
from tests.support.knft_command import NODE_FLAG
from tests.support.traced_cluster import write_manifests

EMPTY = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
UNINTERPRETED = """*raw
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -m future --option -j DROP
-A OUTPUT -m future --option -j DROP
COMMIT
"""


def _diff(manifests: Path, *more: str) -> Result:
    return CliRunner().invoke(cli, ["diff", "-f", str(manifests), *NODE_FLAG, *more], catch_exceptions=False)


@pytest.fixture
def no_objects(tmp_path: Path) -> Path:
    path = tmp_path / "empty.yaml"
    path.write_text("apiVersion: v1\nkind: List\nitems: []\n")
    return path


def _save(folder: Path, text: str) -> tuple[str, str]:
    (folder / "save").write_text(text)
    return "--iptables-save", str(folder / "save")


@pytest.mark.parametrize("mode", ["iptables", "ipvs"])
def test_no_service_on_either_side_has_its_own_status(no_objects: Path, mode: str) -> None:
    done = _diff(no_objects, "--against", mode)
    assert done.exit_code == 3
    assert done.output.startswith("Nothing was compared: neither side has a Service\n")


def test_capture_without_services_has_its_own_status(no_objects: Path, tmp_path: Path) -> None:
    assert _diff(no_objects, *_save(tmp_path, EMPTY)).exit_code == 3


def test_services_on_one_side_are_a_difference(tmp_path: Path) -> None:
    assert _diff(write_manifests(tmp_path), *_save(tmp_path, EMPTY)).exit_code == 1


def test_only_uninterpreted_rules_have_their_own_status(tmp_path: Path) -> None:
    done = _diff(write_manifests(tmp_path), *_save(tmp_path, UNINTERPRETED), "-o", "json")
    assert done.exit_code == 3
    assert '"verdict": "nothing"' in done.output
