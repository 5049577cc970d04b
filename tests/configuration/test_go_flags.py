"""Flags in the syntax of Go programs, so that knft accepts command lines of kube-proxy."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from knft import __version__
from knft.cli.commands import cli, run
from knft.cli.go_flags import invalid_flags
from knft.errors import ConfigurationError
from tests.support.knft_command import KNFT
from tests.support.loaded_settings import config_text, load, parse_flags

SPELLINGS: dict[str, dict[str, Any]] = {
    "--masquerade-all": {"--masquerade-all": True},
    "--masquerade-all=true": {"--masquerade-all": True},
    "--masquerade-all=T": {"--masquerade-all": True},
    "--masquerade-all=1": {"--masquerade-all": True},
    "--masquerade-all=false": {"--masquerade-all": False},
    "--masquerade-all=F": {"--masquerade-all": False},
    "--masquerade_all=0": {"--masquerade-all": False},
    "--masquerade_all": {"--masquerade-all": True},
    "--masquerade-all --masquerade-all=false": {"--masquerade-all": False},
    "--once --manifests .": {"--once": True, "--manifests": "."},
    "-v 2": {"--v": 2},
    "-v=2": {"--v": 2},
    "-v2": {"--v": 2},
    "--v 2": {"--v": 2},
    "--v=2": {"--v": 2},
    "--log_dir=/var/log --logtostderr=false": {"--log-dir": "/var/log", "--logtostderr": False},
    "--config /f --hostname-override n": {"--config": "/f", "--hostname-override": "n"},
    "--config=/f --hostname-override=n": {"--config": "/f", "--hostname-override": "n"},
    "--cluster-cidr=10.0.0.0/8,fd00::/8": {"--cluster-cidr": ("10.0.0.0/8,fd00::/8",)},
    "--nodeport-addresses a,b --nodeport-addresses=c": {"--nodeport-addresses": ("a,b", "c")},
    "--oom-score-adj=-998": {"--oom-score-adj": -998},
    "--oom-score-adj -998": {"--oom-score-adj": -998},
    "--kube-api-qps=-1": {"--kube-api-qps": -1.0},
    "--hostname-override=": {"--hostname-override": ""},
    "--config=-v=2": {"--config": "-v=2"},
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_spellings_of_go_flags_are_accepted(text: str) -> None:
    assert parse_flags(*text.split()) == SPELLINGS[text]


INVALID_FLAGS = {
    "--masquerade-all=maybe": "--masquerade-all: 'maybe' is not true or false",
    "--masquerade-all false": "'false': unexpected argument; knft run has only flags",
    "--oom-score-adj=many": "--oom-score-adj: 'many' is not a whole number",
    "--oom-score-adj=3000000000": "--oom-score-adj: 3000000000 is not in the range -2147483648 to 2147483647",
    "--iptables-masquerade-bit=32": "--iptables-masquerade-bit: 32 is not in the range 0 to 31",
    "--healthz-port=-1": "--healthz-port: -1 is not in the range 0 to 65535",
    "--kube-api-qps=fast": "--kube-api-qps: 'fast' is not a valid float",
    "--v=-1": "--v: -1 is not in the range 0 to 2147483647",
    "--frobnicate": "--frobnicate: unknown flag, see knft run --help",
    "--frobnicate value": "--frobnicate: unknown flag, see knft run --help",
    "--frobnicate=value": "--frobnicate: unknown flag, see knft run --help",
    "--proxy_mod=ipvs": "--proxy-mod: unknown flag, see knft run --help; did you mean --proxy-mode?",
    "-xv2": "-x: unknown flag, see knft run --help",
    "nodes": "'nodes': unexpected argument; knft run has only flags",
    "-- --masquerade-all": "'--masquerade-all': unexpected argument; knft run has only flags",
    "--config": "--config: it requires a value",
}


@pytest.mark.parametrize("text", INVALID_FLAGS)
def test_invalid_flag_is_an_error(text: str) -> None:
    assert invalid_flags(run.make_context("run", text.split())) == (INVALID_FLAGS[text],)


def test_help_is_printed_though_another_flag_is_unknown() -> None:
    done = CliRunner().invoke(cli, ["run", "--frobnicate", "--help"])
    assert (done.exit_code, done.output.startswith("Usage:")) == (0, True)


def test_last_value_of_a_repeated_feature_gate_applies() -> None:
    """As with kube-proxy, also if the last text was there before."""
    document = load("--feature-gates=AllAlpha=false,AllAlpha=true,AllAlpha=false", "--node=node-1").document
    assert document["featureGates"] == {"AllAlpha": False}


def test_list_flags_accept_commas_and_repetition() -> None:
    flags = ("--nodeport-addresses=192.0.2.0/24, primary", "--nodeport-addresses", "fd00::/64")
    assert load(*flags).config.nodeport_addresses == ("192.0.2.0/24", "primary", "fd00::/64")
    gates = load("--feature-gates=AllAlpha=true,AllBeta=FALSE", "--feature-gates=ComponentStatusz=1").document[
        "featureGates"
    ]
    assert gates == {"AllAlpha": True, "AllBeta": False, "ComponentStatusz": True}


@pytest.mark.parametrize("flag", ["--version", "--version=true", "--version=raw"])
def test_version_flag_prints_the_version(flag: str) -> None:
    done = CliRunner().invoke(cli, ["run", flag, "--config=/nonexistent"])
    assert (done.exit_code, done.output) == (0, f"knft {__version__}\n")


def test_each_problem_of_flags_and_file_is_a_line_and_the_status_is_2(tmp_path: Path) -> None:
    """Problems of the file are in its order, whatever their kind."""
    path = tmp_path / "config.conf"
    path.write_text(EACH_KIND_OF_MISTAKE)
    file_flags = (f"--config={path}", "--node-ip=x", "--node-ip=192.0.2.1,y")
    command = [*KNFT, "run", "--oom-score-adj=many", "--syncperiod", "5s", *file_flags, "--max-sync-period=soon"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    field = f"knft: {path}: KubeProxyConfiguration"
    assert done.stderr.splitlines() == [
        f"knft: {path}: line 15: duplicate key 'portRange'; using the last value",
        f"knft: {path}: apiVersion is 'kubeproxy.config.k8s.io/v1', but must be kubeproxy.config.k8s.io/v1alpha1",
        f"{field}.bindAdress: unknown field, ignored; did you mean bindAddress?",
        f"{field}.oomScoreAdj: it is text, 'low', but must be a whole number",
        f"{field}.masqueradeAll: unknown field, ignored; {OTHER_SECTIONS}",
        f"{field}.iptables.masqueradeBit: 44 is not between 0 and 31",
        f"{field}.conntrack.udpTimeout: 'soon' is not a duration; write it as in 1s, 500ms or 1m30s",
        f"{field}.featureGates: unknown feature gate WinDRS; did you mean WinDSR?",
        f"{field}.featureGates: NFTablesProxyMode cannot be false: knft always uses nftables",
        f"{field}.nodePortAddresses: 'primry' {A_CIDR}; did you mean primary?",
        f"{field}.nodePortAddresses[1]: it is a number, 5, but must be text",
        f"{field}.nodePortAddresses: '10.0.0.1' {A_CIDR}",
        f"{field}.windowsRunAsService: true is rejected: an option of kube-proxy on Windows; knft runs on Linux",
        f"{field}.portRange: 'a' is not a port range such as 30000-32767",
        f"{field}.logging.format: 'jsn' is not text or json; did you mean json?",
        f"{field}.configSyncPeriod: -1s must be more than 0",
        f"{field}.nftables.syncPeriod: 5s {PERIODS}",
        f"{field}.detectLocal.bridgeInterface: it is required with {BRIDGE_MODE}",
        "knft: --syncperiod: unknown flag, see knft run --help; did you mean --sync-period?",
        "knft: --oom-score-adj: 'many' is not a whole number",
        "knft: --node-ip: 'x' is not an IP address",
        "knft: --node-ip: 'y' is not an IP address",
        "knft: --max-sync-period: 'soon' is not a duration; write it as in 1s, 500ms or 1m30s",
    ]


EACH_KIND_OF_MISTAKE = """\
apiVersion: kubeproxy.config.k8s.io/v1
kind: KubeProxyConfiguration
mode: nftables
bindAdress: 192.0.2.1
oomScoreAdj: low
masqueradeAll: true
iptables:
  masqueradeBit: 44
conntrack: {udpTimeout: soon}
featureGates: {WinDRS: true, NFTablesProxyMode: false}
detectLocalMode: BridgeInterface
nodePortAddresses: [primry, 5, 10.0.0.1]
windowsRunAsService: true
portRange: "b"
portRange: a
logging: {format: jsn}
configSyncPeriod: -1s
nftables: {minSyncPeriod: 10s, syncPeriod: 5s}
"""
OTHER_SECTIONS = "did you mean iptables.masqueradeAll or nftables.masqueradeAll?"
PERIODS = "must be more than 0 and not less than KubeProxyConfiguration.nftables.minSyncPeriod, 10s"
BRIDGE_MODE = "KubeProxyConfiguration.detectLocalMode BridgeInterface"
A_CIDR = "is not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48"


def test_flags_are_checked_though_the_file_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "missing"
    command = [*KNFT, "run", f"--config={path}", "--logging-format=xml", "--manifests=.", "--sync-period=soon"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()) == (2, [
        "knft: --sync-period: 'soon' is not a duration; write it as in 1s, 500ms or 1m30s",
        "knft: --logging-format: 'xml' is not text or json",
        f"knft: {path}: No such file or directory",
    ])  # fmt: skip


FALSE_ALARMS: dict[str, tuple[list[str], str]] = {
    "a period of a flag": (["--sync-period=soon"], ""),
    "a period beside one that is no duration": ([], "iptables: {syncPeriod: soon, minSyncPeriod: 60s}"),
    "periods of a mode that is no text": ([], "mode: 5\niptables: {syncPeriod: 1s, minSyncPeriod: 60s}"),
    "a bridge that is no text": ([], "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: 5}"),
    "pod ranges in a local mode that is no text": ([], "detectLocalMode: 5\nclusterCIDR: x"),
    "a section that is a list": ([], "iptables: []\nclientConnection: {kubeconfig: /f}"),
    "a name that is no text": (["--manifests=."], "hostnameOverride: 5"),
}


@pytest.mark.parametrize("name", FALSE_ALARMS)
def test_nothing_is_reported_because_of_a_value_that_was_reported(name: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(*FALSE_ALARMS[name][0], text=config_text(FALSE_ALARMS[name][1]))
    assert len(str(raised.value).splitlines()) == 1


def test_once_needs_manifests() -> None:
    done = subprocess.run([*KNFT, "run", "--once"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "knft: --once requires --manifests\n")
