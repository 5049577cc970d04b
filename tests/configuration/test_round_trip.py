"""``--write-config-to``: loading the written file gives the same settings; /configz shows the same document."""

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from knft import durations
from knft.configuration.settings import Settings
from knft.configuration.write import to_yaml
from tests.configuration.strategies import CONFIGURATIONS
from tests.support.knft_command import KNFT
from tests.support.loaded_settings import KUBEADM, PRIMARY_FLAG, config_with_paths, load
from tests.support.log_lines import messages


def without_warnings(found: Settings) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__ if name != "warnings"}


@given(CONFIGURATIONS)
@settings(max_examples=300, deadline=None)
@example({"mode": "ipvs", "ipvs.minSyncPeriod": "0s"})
@example({"hostnameOverride": "1e5"})
@example({"nodePortAddresses": ["all"], "mode": "iptables", "iptables.masqueradeAll": True})
def test_written_configuration_gives_the_same_settings(fields: dict[str, Any]) -> None:
    first = load(text=config_with_paths(fields))
    data = to_yaml(first.document)
    second = load(text=data)
    assert without_warnings(second) == without_warnings(first)
    assert to_yaml(second.document) == data


@given(CONFIGURATIONS)
@settings(max_examples=50, deadline=None)
def test_document_is_plain_json(fields: dict[str, Any]) -> None:
    document = load(text=config_with_paths(fields)).document
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--min-sync-period=0",),
        ("--kube-api-qps=0", "--kube-api-burst=0"),
        ("--masquerade-all", "--cluster-cidr=10.0.0.0/8,fd00::/8"),
    ],
)
def test_settings_of_flags_can_be_written(flags: tuple[str, ...]) -> None:
    first = load(*flags)
    assert without_warnings(load(text=to_yaml(first.document))) == without_warnings(first)


def test_min_sync_period_of_zero_is_written_as_1ns() -> None:
    """In a file, 0 counts as unset, which means 1 s."""
    assert load("--min-sync-period=0").document["nftables"]["minSyncPeriod"] == "1ns"
    assert load("--min-sync-period=0").config.min_sync_period == 0.0


def test_effective_values_are_written_to_section_nftables() -> None:
    document = load(
        text=config_with_paths({"mode": "ipvs", "ipvs.syncPeriod": "40s", "iptables.masqueradeBit": 9})
    ).document
    assert document["mode"] == "nftables"
    assert document["nftables"] == {
        "masqueradeBit": 9, "masqueradeAll": False, "syncPeriod": "40s", "minSyncPeriod": "1ns",
    }  # fmt: skip
    assert (document["ipvs"]["syncPeriod"], document["iptables"]["masqueradeBit"]) == ("30s", 14)
    assert document["nodePortAddresses"] == ["primary"]


def test_write_config_to_writes_the_configuration(tmp_path: Path) -> None:
    """It loads kubeadm's file, then the file that it wrote; the second output equals the first."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    for source, target in ((KUBEADM, first), (first, second)):
        command = [*KNFT, "run", f"--config={source}", f"--write-config-to={target}", "--hostname-override=node-1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert f"wrote the configuration to {target}" in messages(done.stderr, "I")
    assert first.read_bytes() == second.read_bytes()
    assert load(text=first.read_bytes()).config == load("--node=node-1", text=KUBEADM.read_bytes()).config


def test_unwritable_file_is_an_error(tmp_path: Path) -> None:
    target = tmp_path / "missing" / "file.yaml"
    command = [*KNFT, "run", PRIMARY_FLAG, f"--write-config-to={target}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"knft: --write-config-to: {target}: cannot write the file: No such file or directory\n"


def write_to(target: Path) -> "subprocess.CompletedProcess[str]":
    command = [*KNFT, "run", PRIMARY_FLAG, f"--write-config-to={target}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, umask=0)


def test_written_file_is_private_and_replaces_the_old_one(tmp_path: Path) -> None:
    """A reader that has the old file open keeps it, and a hard link to it keeps its content."""
    target, linked = tmp_path / "file.yaml", tmp_path / "linked"
    linked.write_text("old")
    linked.chmod(0o644)
    target.hardlink_to(linked)
    assert write_to(target).returncode == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert target.read_text().startswith("apiVersion:")
    assert linked.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"file.yaml", "linked"}


@pytest.mark.parametrize("kind", ["link", "broken link", "FIFO", "folder"])
def test_only_a_regular_file_is_replaced(tmp_path: Path, kind: str) -> None:
    target, other = tmp_path / "target", tmp_path / "other"
    if kind == "FIFO":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    else:
        target.symlink_to(other)
    if kind == "link":
        other.write_text("old")
    before = target.lstat()
    done = write_to(target)
    reason = "a symbolic link, which knft does not follow" if "link" in kind else "not a regular file"
    assert done.returncode == 2
    assert done.stderr == f"knft: --write-config-to: {target}: cannot write the file: it is {reason}\n"
    assert target.lstat() == before
    assert other.read_text() == "old" if kind == "link" else not other.exists()
    assert len(list(tmp_path.iterdir())) == (2 if kind == "link" else 1)


DURATIONS = {
    "0s": 0, "1ns": 1, "1.5µs": 1500, "250ms": 250 * 10**6, "1s": 10**9, "1.000000001s": 10**9 + 1,
    "1m0s": 60 * 10**9, "1m30.5s": 90_500_000_000, "24h0m0s": 86400 * 10**9, "-1m0s": -60 * 10**9,
    "2562047h47m16.854775807s": (1 << 63) - 1,
}  # fmt: skip


@pytest.mark.parametrize("text", DURATIONS)
def test_durations_are_formatted_as_in_go(text: str) -> None:
    assert (durations.format_duration(DURATIONS[text]), durations.parse_duration(text)) == (text, DURATIONS[text])


@given(st.integers(-durations.MAX_NANOSECONDS, durations.MAX_NANOSECONDS))
def test_formatted_duration_is_parsed_to_the_same_value(duration: int) -> None:
    assert durations.parse_duration(durations.format_duration(duration)) == duration


@pytest.mark.parametrize("text", ["", "-", "--1s", "+-1s", "1", "9" * 200 + "s", "2562048h", "1s\n"])
def test_invalid_duration_is_parsed_to_none(text: str) -> None:
    assert durations.parse_duration(text) is None
