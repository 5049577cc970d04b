"""What kube-proxy does once, before its first sync (behaviour.md E.1, E.2)."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from knft.model.names import Family
from knft_compat.ipvs import Settings, Timeouts, Vintage
from knft_compat.ipvs.existing import ExistingServer
from knft_compat.ipvs.preconditions import Preconditions, preconditions
from knft_compat.ipvs.vintages import FEATURES
from knft_compat.page import Page
from tests.compat.ipvs_page import cluster, lines
from tests.unit.objects import table

PROBE = "ipvsadm -A -t 198.51.100.0:20000 -s "


@table(
    {
        "too old to reuse connections": ((4, 0), False),
        "4.1 can": ((4, 1), True),
        "5.8 does it wrong": ((5, 8), True),
        "5.9 does it right": ((5, 9), False),
        "6.1": ((6, 1), False),
    }
)
def test_connection_reuse_depends_on_the_kernel(row: Any) -> None:
    kernel, expected = row
    assert lines(cluster(), "sysctls", kernel=kernel) == [
        "net/ipv4/vs/conntrack = 1",
        *(["net/ipv4/vs/conn_reuse_mode = 0"] if expected else []),
        "net/ipv4/vs/expire_nodest_conn = 1",
        "net/ipv4/vs/expire_quiescent_template = 1",
        "net/ipv4/ip_forward = 1",
    ]


def test_strict_arp_comes_last() -> None:
    assert lines(cluster(), "sysctls", strict_arp=True)[-2:] == [
        "net/ipv4/conf/all/arp_ignore = 1",
        "net/ipv4/conf/all/arp_announce = 2",
    ]


def test_timeouts_are_set_together_or_not_at_all() -> None:
    assert lines(cluster(), "timeouts") == []
    assert lines(cluster(), "timeouts", timeouts=Timeouts(udp=30)) == ["ipvsadm --set 0 0 30"]


def test_the_device_is_made_and_never_set_up() -> None:
    expected = "ip link show kube-ipvs0 >/dev/null 2>&1 || ip link add kube-ipvs0 type dummy"
    assert lines(cluster(), "device") == [expected]


@pytest.mark.parametrize("vintage", [Vintage.NEWEST, Vintage.V1_29])
def test_the_scheduler_is_tried_out_unless_a_virtual_server_has_it(vintage: Vintage) -> None:
    server = ExistingServer("10.96.0.1", 80, "TCP", "rr")
    assert lines(cluster(), "preconditions", vintage=vintage)[1].startswith(f"{PROBE}rr ")
    assert lines(cluster(), "preconditions", vintage=vintage)[-1] == "ipvsadm -D -t 198.51.100.0:20000"
    assert len(lines(cluster(), "preconditions", vintage=vintage, servers=(server,))) == 1
    other = lines(cluster(), "preconditions", vintage=vintage, servers=(server,), scheduler="lc")
    assert other[1].startswith(f"{PROBE}lc ")


@table(
    {
        "4.18": ((4, 18), "nf_conntrack_ipv4"),
        "4.19": ((4, 19), "nf_conntrack"),
    }
)
def test_the_old_vintages_load_modules_and_need_all_but_conntracks(row: Any) -> None:
    kernel, conntrack = row
    for vintage in (Vintage.V1_26, Vintage.V1_23):
        found = preconditions(Settings(vintage=vintage, kernel=kernel, scheduler="lc"), FEATURES[vintage])
        assert found.loaded == ("ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", conntrack)
        assert found.needed == ("ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", "ip_vs_lc")
        assert found.scheduler is None


@pytest.mark.parametrize(
    ("version", "good"), [("v7.17", True), ("v6.0", True), ("v10.1", True), ("v5.9", False), ("nothing", False)]
)
def test_ipset_before_6_0_is_refused_by_the_command_itself(version: str, *, good: bool) -> None:
    command = lines(cluster(), "preconditions")[0].replace(
        "ipset --version", f"echo 'ipset {version}, protocol version: 7'"
    )
    done = subprocess.run(["/bin/sh"], input=command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == ((0, "") if good else (1, "ipset 6.0 or newer is needed\n"))


class Commands(Struct, frozen=True):
    """A part of any commands."""

    command: str
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        yield self.command


class First(Commands, frozen=True, tag="first"):
    """Their tag is the part's name."""


class Second(Commands, frozen=True, tag="second"):
    pass


@table({"well": ("true", "later\n", 0), "badly": ("exit 1", "", 1)})
def test_where_a_part_ends_badly_nothing_follows_it(row: tuple[str, str, int]) -> None:
    command, said, status = row
    script = Page("ipvs", Family.IPV4, (First(command), Second("echo later"))).script()
    done = subprocess.run(["/bin/sh"], input=script, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (said, status)


def test_what_is_missing_is_said_as_it_is() -> None:
    """A scheduler's name is checked where it is typed, but words may hold any sign."""
    scheduler = "it's $HOME"
    *_, command = Preconditions(scheduler=scheduler).text()
    tried = next(line for line in Preconditions(scheduler=scheduler).text() if line.startswith("ipvsadm -A"))
    assert command.startswith("ipvsadm -D")
    done = subprocess.run(["/bin/sh"], input=f"false || {tried.partition(' || ')[2]}", capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.stderr == f"IPVS, or its scheduler {scheduler}, is missing\n"


@pytest.mark.parametrize("vintage", Vintage)
def test_every_command_is_one_that_a_shell_can_read(vintage: Vintage) -> None:
    for part in ("preconditions", "chains", "jumps", "device", "conntrack"):
        text = "\n".join(lines(cluster(), part, vintage=vintage))
        subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True)
