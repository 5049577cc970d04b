"""Flags in the syntax of Go programs, so that knft accepts command lines of kube-proxy."""

import subprocess
from typing import Any

import pytest
from click import UsageError
from click.testing import CliRunner

from knft import __version__
from knft.cli.commands import cli
from tests.configuration.loading import load, parse_flags
from tests.support.knft_command import KNFT

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
    "--masquerade-all=maybe": "'maybe' is not true or false",
    "--masquerade-all false": "unexpected extra argument (false)",
    "--oom-score-adj=many": "'many' is not a whole number",
    "--oom-score-adj=3000000000": "3000000000 is not in the range -2147483648 to 2147483647",
    "--iptables-masquerade-bit=32": "32 is not in the range 0 to 31",
    "--healthz-port=-1": "-1 is not in the range 0 to 65535",
    "--kube-api-qps=fast": "'fast' is not a valid float",
    "--v=-1": "-1 is not in the range",
    "--frobnicate": "No such option",
    "nodes": "unexpected extra argument (nodes)",
    "-- --masquerade-all": "unexpected extra argument (--masquerade-all)",
    "--config": "requires an argument",
}


@pytest.mark.parametrize("text", INVALID_FLAGS)
def test_invalid_flag_is_an_error(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_flags(*text.split())
    assert INVALID_FLAGS[text] in raised.value.format_message()


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


def test_each_problem_is_a_line_and_the_status_is_2() -> None:
    command = [*KNFT, "run", "--oom-score-adj=2000", "--bind-address=x", "--iptables-sync-period=soon"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "knft: --iptables-sync-period: 'soon' is not a duration; write it as in 1s, 500ms or 1m30s",
        "knft: --oom-score-adj: 2000 is not between -1000 and 1000",
        "knft: --bind-address: 'x' is not an IP address",
    ]


def test_once_needs_manifests() -> None:
    done = subprocess.run([*KNFT, "run", "--once"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "knft: --once requires --manifests\n")
