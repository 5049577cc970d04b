"""What ``make test-e2e`` checks besides the specs: knft's processes in its pods, and what a removed cluster leaves."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.running_pods import EXPECTED, PodProcess, differences, explanation_problems, read_values
from tests.support.cluster_traces import ClusterNames, ClusterTraces, find_traces, leftovers
from tests.support.machine_state import MachineState, Process, read_machine_state

_STATUS = """Name:\tknft
Uid:\t0\t0\t0\t0
CapInh:\t0000000000001000
CapPrm:\t0000000000001000
CapEff:\t0000000000001000
CapBnd:\t0000000000001000
CapAmb:\t0000000000001000
NoNewPrivs:\t1
Seccomp:\t2
Seccomp_filters:\t1
"""
_MOUNTS = "9 8 0:7 / / ro,relatime shared:1 - overlay overlay rw,lowerdir=/a\n10 9 0:5 / /proc rw - proc proc rw\n"


def test_values_are_those_of_proc() -> None:
    assert read_values(_STATUS, _MOUNTS) == EXPECTED["main process"] == EXPECTED["worker process"]


@pytest.mark.parametrize(
    ("status", "mounts", "field"),
    [
        (_STATUS.replace("CapBnd:\t0000000000001000", "CapBnd:\t00000000a80425fb"), _MOUNTS, "CapBnd"),
        (_STATUS.replace("Seccomp:\t2", "Seccomp:\t0"), _MOUNTS, "Seccomp"),
        (_STATUS.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"), _MOUNTS, "NoNewPrivs"),
        (_STATUS.replace("Uid:\t0", "Uid:\t65534"), _MOUNTS, "Uid"),
        (_STATUS, _MOUNTS.replace("ro,", "rw,"), "mount of /"),
    ],
)
def test_differing_privilege_is_named(status: str, mounts: str, field: str) -> None:
    found = [PodProcess(role, number, EXPECTED[role]) for number, role in enumerate(EXPECTED)]
    assert list(differences(found, EXPECTED)) == []
    different = PodProcess("worker process", 2, read_values(status, mounts))
    (text,) = differences([*found[:2], different], EXPECTED)
    assert text.startswith(f"{field} of worker process 2 is ")
    assert list(differences(found[:2], EXPECTED)) == ["no worker process is running"]


def test_endpoints_without_pods_are_named() -> None:
    endpoints = [{"endpoint": f"10.0.0.{number}:53", "pod": pod, "node": "n"} for number, pod in enumerate(("p", ""))]
    found = {"warnings": ["pods are missing"], "ports": [{"endpoints": endpoints}]}
    assert list(explanation_problems(json.dumps(found))) == [
        "knft explain warns: pods are missing",
        "knft explain prints no pod or no node for 10.0.0.1:53",
    ]
    assert list(explanation_problems('{"warnings": [], "ports": []}')) == ["knft explain prints no endpoint"]


_NAMES = ClusterNames(Path("/state/cluster"), "knft-0123abcd")
_OWN = Process(1, "10", "python -m tests.e2e", "3:memory:/job\n", frozenset({"net:[1]", "pid:[2]", "mnt:[3]"}))
_INIT = Process(50, "99", "/bin/init", "3:memory:/job\n", frozenset({"net:[11]", "pid:[12]", "mnt:[13]"}))
_POD = Process(60, "99", "pause", "3:memory:/job/knft-0123abcd-node1/kubepods/x\n", frozenset({"net:[21]", "pid:[12]"}))
_SHELL = Process(70, "99", "less /state/cluster/logs/x", "3:memory:/job\n", _OWN.namespaces)
_BEFORE = MachineState(
    sysctls={"net/ipv4/ip_forward": "0", "vm/overcommit_memory": "0"},
    links=frozenset({"lo", "eth0"}),
    tables=frozenset({"table ip filter"}),
    cgroups=frozenset({"/sys/fs/cgroup/memory/job"}),
    own_cgroups="3:memory:/job\n",
    mounts=frozenset({"0:7 / / rw - ext4 /dev/sda rw"}),
    paths=frozenset({"/etc/init.d/procps"}),
    processes=(_OWN,),
)
_RUNNING = msgspec.structs.replace(
    _BEFORE,
    cgroups=_BEFORE.cgroups | {"/sys/fs/cgroup/memory/job/knft-0123abcd-node1"},
    processes=(_OWN, _INIT, _POD, _SHELL),
)
_TRACES = find_traces(_BEFORE, _RUNNING, _NAMES, _INIT.pid)


def test_traces_are_the_cluster_s_alone() -> None:
    assert find_traces(_BEFORE, _RUNNING, _NAMES, _INIT.pid) == ClusterTraces(
        _NAMES,
        frozenset({(50, "99"), (60, "99")}),
        frozenset({"net:[11]", "pid:[12]", "mnt:[13]", "net:[21]"}),
        frozenset({"/sys/fs/cgroup/memory/job/knft-0123abcd-node1"}),
        recorded=99,
    )


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ({"sysctls": {"net/ipv4/ip_forward": "1"}}, "sysctl net/ipv4/ip_forward is '1'; it was '0'"),
        ({"sysctls": {"vm/overcommit_memory": "1"}}, "sysctl vm/overcommit_memory is '1'; it was '0'"),
        ({"links": {"lo", "br0"}}, "network link br0 is left"),
        ({"tables": {"table ip knft"}}, "nftables' table ip knft is left"),
        ({"cgroups": {"/sys/fs/cgroup/pids/kubepods"}}, "cgroup /sys/fs/cgroup/pids/kubepods is left"),
        ({"own_cgroups": "0::/knft-launcher\n"}, "the cgroups of this process are '0::/knft-launcher\\n'; they were"),
        ({"paths": {"/etc/init.d/procps", "/run/netns/cni-21"}}, "/run/netns/cni-21 was created"),
        ({"mounts": {"0:4 /state/cluster/x /mnt rw - ext4 a rw"}}, "mount 0:4 /state/cluster/x /mnt rw"),
        ({"mounts": {"0:4 / /var/lib/kubelet/v rw - tmpfs a rw"}}, "mount 0:4 / /var/lib/kubelet/v rw"),
        ({"paths": {"/etc/init.d/procps", "/opt/cni"}}, "/opt/cni was created"),
        ({"paths": {"/etc/init.d/procps", "/state/cluster"}}, "/state/cluster was created"),
        ({"paths": {"/etc/init.d/procps", "/etc/init.d/kubelet"}}, "/etc/init.d/kubelet was created"),
        ({"processes": (_OWN, _POD)}, "process 60 (pause) is left, in net:[21], in pid:[12]"),
    ],
)
def test_each_trace_that_is_left_is_reported(left: Mapping[str, Any], text: str) -> None:
    fields = {name: frozenset(value) if isinstance(value, set) else value for name, value in left.items()}
    (found,) = leftovers(_BEFORE, msgspec.structs.replace(_BEFORE, **fields), _TRACES)
    assert found.startswith(text)


def test_changes_by_others_are_no_traces() -> None:
    """Those of another runtime or cluster, and a process and a namespace that have the numbers of old ones."""
    others = msgspec.structs.replace(
        _BEFORE,
        links=_BEFORE.links | {"docker0"},
        cgroups=_BEFORE.cgroups | {"/sys/fs/cgroup/memory/docker", "/sys/fs/cgroup/job/knft-99999999-node1/kubepods"},
        mounts=_BEFORE.mounts | {"0:4 net:[21] /run/docker/netns/x rw - nsfs nsfs rw"},
        processes=(_OWN, _SHELL, Process(60, "123", "make", "3:memory:/job\n", frozenset({"net:[21]"}))),
    )
    assert leftovers(_BEFORE, others, _TRACES) == []
    present = read_machine_state()
    assert (present.sysctls.keys() >= {"net/ipv4/ip_forward"}, "lo" in present.links) == (True, True)
    assert any(each.command for each in present.processes)
