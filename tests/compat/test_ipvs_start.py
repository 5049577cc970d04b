"""Tests of the commands that kube-proxy runs once, before its first sync (docs/behaviour/ipvs.md#preconditions)."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from knft.families import Family
from knft_compat.ipvs import RuleVersion, Settings, Timeouts
from knft_compat.ipvs.existing import ExistingServer
from knft_compat.ipvs.preconditions import Preconditions, preconditions
from knft_compat.ipvs.rule_versions import FEATURES
from knft_compat.sync_output import SyncOutput
from tests.compat.ipvs_render import part_lines, sync_input
from tests.support.kube_objects import parametrize_cases

PROBE = "ipvsadm -A -t 198.51.100.0:20000 -s "


@parametrize_cases(
    {
        "4.0 cannot reuse connections": ((4, 0), False),
        "4.1 can reuse connections": ((4, 1), True),
        "5.8 reuses connections incorrectly": ((5, 8), True),
        "5.9 reuses connections correctly": ((5, 9), False),
        "6.1": ((6, 1), False),
    }
)
def test_connection_reuse_depends_on_the_kernel(case: Any) -> None:
    kernel, expected = case
    assert part_lines(sync_input(), "sysctls", kernel=kernel) == [
        "net/ipv4/vs/conntrack = 1",
        *(["net/ipv4/vs/conn_reuse_mode = 0"] if expected else []),
        "net/ipv4/vs/expire_nodest_conn = 1",
        "net/ipv4/vs/expire_quiescent_template = 1",
        "net/ipv4/ip_forward = 1",
    ]


def test_strict_arp_comes_last() -> None:
    assert part_lines(sync_input(), "sysctls", strict_arp=True)[-2:] == [
        "net/ipv4/conf/all/arp_ignore = 1",
        "net/ipv4/conf/all/arp_announce = 2",
    ]


def test_timeouts_are_set_together_or_not_at_all() -> None:
    assert part_lines(sync_input(), "timeouts") == []
    assert part_lines(sync_input(), "timeouts", timeouts=Timeouts(udp=30)) == ["ipvsadm --set 0 0 30"]


def test_device_is_created_and_stays_down() -> None:
    expected = "ip link show kube-ipvs0 >/dev/null 2>&1 || ip link add kube-ipvs0 type dummy"
    assert part_lines(sync_input(), "device") == [expected]


@pytest.mark.parametrize("rule_version", [RuleVersion.NEWEST, RuleVersion.DOCUMENT_004])
def test_scheduler_is_tested_unless_a_virtual_server_uses_it(rule_version: RuleVersion) -> None:
    server = ExistingServer("10.96.0.1", 80, "TCP", "rr")
    assert part_lines(sync_input(), "preconditions", rule_version=rule_version)[1].startswith(f"{PROBE}rr ")
    assert (
        part_lines(sync_input(), "preconditions", rule_version=rule_version)[-1] == "ipvsadm -D -t 198.51.100.0:20000"
    )
    assert len(part_lines(sync_input(), "preconditions", rule_version=rule_version, existing_servers=(server,))) == 1
    other = part_lines(
        sync_input(), "preconditions", rule_version=rule_version, existing_servers=(server,), scheduler="lc"
    )
    assert other[1].startswith(f"{PROBE}lc ")


@parametrize_cases(
    {
        "4.18": ((4, 18), "nf_conntrack_ipv4"),
        "4.19": ((4, 19), "nf_conntrack"),
    }
)
def test_old_versions_load_modules(case: Any) -> None:
    kernel, conntrack = case
    for rule_version in (RuleVersion.DOCUMENT_002, RuleVersion.DOCUMENT_003):
        result = preconditions(
            Settings(rule_version=rule_version, kernel=kernel, scheduler="lc"), FEATURES[rule_version]
        )
        assert result.modules_to_load == ("ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", conntrack)
        assert result.required_modules == ("ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", "ip_vs_lc")
        assert result.scheduler is None


@pytest.mark.parametrize(
    ("configuration", "status"),
    [("CONFIG_IP_VS=y\n", 0), ("CONFIG_IP_VS=m\n", 1), ("CONFIG_IP_VS_RR=y\n", 1), (None, 1)],
)
def test_kernel_without_loadable_modules_is_checked_by_its_configuration(
    tmp_path: Path, configuration: str | None, status: int
) -> None:
    """The file /boot/config-* counts only without /proc/modules (document 002, GetModules)."""
    if configuration is not None:
        (tmp_path / "config").write_text(configuration)
    lines = Preconditions(modules_to_load=("ip_vs",), required_modules=("ip_vs",)).text()
    command = next(line for line in lines if line.startswith("grep"))
    for path in ("/lib/modules/$(uname -r)/modules.builtin", "/proc/modules"):
        command = command.replace(path, str(tmp_path / "none"))
    command = command.replace("/boot/config-$(uname -r)", str(tmp_path / "config"))
    assert subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False).returncode == status
    (tmp_path / "none").write_text("")
    assert subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize(("value", "is_logged"), [("0", True), ("1", False), (None, False)])
def test_old_versions_log_that_iptables_does_not_see_bridged_packets(
    tmp_path: Path, value: str | None, *, is_logged: bool
) -> None:
    """Without the module br_netfilter there is no sysctl, and no line in the log (document 002, NewProxier)."""
    if value is not None:
        (tmp_path / "sysctl").write_text(f"{value}\n")
    (command,) = (
        line
        for line in part_lines(sync_input(), "preconditions", rule_version=RuleVersion.DOCUMENT_002)
        if "bridge-nf-call-iptables" in line
    )
    command = command.replace("/proc/sys/net/bridge/bridge-nf-call-iptables", str(tmp_path / "sysctl"))
    done = subprocess.run(["/bin/sh", "-e", "-c", command], capture_output=True, text=True, check=False)
    message = "Missing br-netfilter module or unset sysctl br-nf-call-iptables, proxy may not work as intended\n"
    assert (done.returncode, done.stderr) == (0, message if is_logged else "")


@pytest.mark.parametrize(
    ("version", "is_supported"), [("v7.17", True), ("v6.0", True), ("v10.1", True), ("v5.9", False), ("nothing", False)]
)
def test_old_ipset_version_fails_the_script(version: str, *, is_supported: bool) -> None:
    command = part_lines(sync_input(), "preconditions")[0].replace(
        "ipset --version", f"echo 'ipset {version}, protocol version: 7'"
    )
    done = subprocess.run(["/bin/sh"], input=command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == ((0, "") if is_supported else (1, "ipset 6.0 or newer is needed\n"))


class FakePart(Struct, frozen=True):
    """A part with one command."""

    command: str
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        yield self.command


class FirstFakePart(FakePart, frozen=True, tag="first"):
    """A part named ``first``."""


class SecondFakePart(FakePart, frozen=True, tag="second"):
    pass


@parametrize_cases({"successful command": ("true", "later\n", 0), "failing command": ("exit 1", "", 1)})
def test_script_stops_at_the_first_failing_part(case: tuple[str, str, int]) -> None:
    command, output, status = case
    script = SyncOutput("ipvs", Family.IPV4, (FirstFakePart(command), SecondFakePart("echo later"))).script()
    done = subprocess.run(["/bin/sh"], input=script, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (output, status)


def test_missing_module_message_is_quoted_for_the_shell() -> None:
    """The message is quoted for the shell."""
    scheduler = "it's $HOME"
    *_, command = Preconditions(scheduler=scheduler).text()
    test_command = next(line for line in Preconditions(scheduler=scheduler).text() if line.startswith("ipvsadm -A"))
    assert command.startswith("ipvsadm -D")
    script = f"false || {test_command.partition(' || ')[2]}"
    done = subprocess.run(["/bin/sh"], input=script, capture_output=True, text=True, check=False)
    assert done.stderr == f"IPVS, or its scheduler {scheduler}, is missing\n"


@pytest.mark.parametrize("rule_version", RuleVersion)
def test_every_command_is_valid_shell(rule_version: RuleVersion) -> None:
    for part in ("preconditions", "chains", "jumps", "device", "conntrack"):
        text = "\n".join(part_lines(sync_input(), part, rule_version=rule_version))
        subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True)
