"""What ``--write-config-to`` writes, read again, is the same; and it is what /configz shows."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from knft import durations
from knft.configuration.settings import Settings
from knft.configuration.write import to_yaml
from tests.configuration.loading import KUBEADM, PRIMARY, load, of_paths
from tests.configuration.strategies import CONFIGURATIONS
from tests.support.knft_command import KNFT


def without_warnings(found: Settings) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__ if name != "warnings"}


@given(CONFIGURATIONS)
@settings(max_examples=300, deadline=None)
@example({"mode": "ipvs", "ipvs.minSyncPeriod": "0s"})
@example({"hostnameOverride": "1e5"})
@example({"nodePortAddresses": ["all"], "mode": "iptables", "iptables.masqueradeAll": True})
def test_what_is_written_means_the_same(fields: dict[str, Any]) -> None:
    first = load(text=of_paths(fields))
    data = to_yaml(first.document)
    second = load(text=data)
    assert without_warnings(second) == without_warnings(first)
    assert to_yaml(second.document) == data


@given(CONFIGURATIONS)
@settings(max_examples=50, deadline=None)
def test_the_document_is_plain_json(fields: dict[str, Any]) -> None:
    document = load(text=of_paths(fields)).document
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
def test_what_flags_mean_can_be_written(flags: tuple[str, ...]) -> None:
    first = load(*flags)
    assert without_warnings(load(text=to_yaml(first.document))) == without_warnings(first)


def test_no_pause_is_written_as_the_least_that_is_one() -> None:
    """0 would be taken for nothing, and nothing for a second."""
    assert load("--min-sync-period=0").document["nftables"]["minSyncPeriod"] == "1ns"
    assert load("--min-sync-period=0").config.min_sync_period == 0.0


def test_the_values_that_count_are_in_the_section_of_nftables() -> None:
    document = load(text=of_paths({"mode": "ipvs", "ipvs.syncPeriod": "40s", "iptables.masqueradeBit": 9})).document
    assert document["mode"] == "nftables"
    assert document["nftables"] == {
        "masqueradeBit": 9, "masqueradeAll": False, "syncPeriod": "40s", "minSyncPeriod": "1ns",
    }  # fmt: skip
    assert (document["ipvs"]["syncPeriod"], document["iptables"]["masqueradeBit"]) == ("30s", 14)
    assert document["nodePortAddresses"] == ["primary"]


def test_the_command_writes_it(tmp_path: Path) -> None:
    """From kubeadm's file; a second time from its own, which it leaves as it is."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    for source, target in ((KUBEADM, first), (first, second)):
        command = [*KNFT, "run", f"--config={source}", f"--write-config-to={target}", "--hostname-override=node-1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert f"INFO wrote the configuration to {target}\n" in done.stderr
    assert first.read_bytes() == second.read_bytes()
    assert load(text=first.read_bytes()).config == load("--node=node-1", text=KUBEADM.read_bytes()).config


def test_unwritable_file_is_an_error(tmp_path: Path) -> None:
    target = tmp_path / "missing" / "file.yaml"
    command = [*KNFT, "run", PRIMARY, f"--write-config-to={target}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"knft: --write-config-to: {target}: cannot write the file: No such file or directory\n"


WRITTEN = {
    "0s": 0, "1ns": 1, "1.5µs": 1500, "250ms": 250 * 10**6, "1s": 10**9, "1.000000001s": 10**9 + 1,
    "1m0s": 60 * 10**9, "1m30.5s": 90_500_000_000, "24h0m0s": 86400 * 10**9, "-1m0s": -60 * 10**9,
    "2562047h47m16.854775807s": (1 << 63) - 1,
}  # fmt: skip


@pytest.mark.parametrize("text", WRITTEN)
def test_durations_are_written_as_go_prints_them(text: str) -> None:
    assert (durations.format_duration(WRITTEN[text]), durations.parse_duration(text)) == (text, WRITTEN[text])


@given(st.integers(-durations.MAX_NANOSECONDS, durations.MAX_NANOSECONDS))
def test_durations_lose_nothing(duration: int) -> None:
    assert durations.parse_duration(durations.format_duration(duration)) == duration


@pytest.mark.parametrize("text", ["", "-", "--1s", "+-1s", "1", "9" * 200 + "s", "2562048h", "1s\n"])
def test_what_is_no_duration(text: str) -> None:
    assert durations.parse_duration(text) is None
