from deploy.cluster.cgroups import Hierarchy, parse_cgroups

_SEPARATE = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
_UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_hierarchies_of_version_1_are_found_although_version_2_is_mounted_too() -> None:
    cgroup = "4:memory:/jobs/7\n3:cpu,cpuacct:/\n2:name=systemd:/user.slice\n0::/user.slice\n"
    assert parse_cgroups(cgroup, _SEPARATE) == (
        Hierarchy("memory", "/sys/fs/cgroup/memory/jobs/7"),
        Hierarchy("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
        Hierarchy("name=systemd", "/sys/fs/cgroup/systemd/user.slice"),
    )


def test_version_2_is_used_if_it_is_alone() -> None:
    found = parse_cgroups("0::/user.slice/session-1.scope\n", _UNIFIED)
    assert found == (Hierarchy("", "/sys/fs/cgroup/user.slice/session-1.scope"),)
    assert found[0].is_v2


def test_process_that_was_moved_aside_keeps_its_own_cgroup() -> None:
    found = parse_cgroups("0::/user.slice/run-1.scope/knft-launcher\n", _UNIFIED)
    assert found == (Hierarchy("", "/sys/fs/cgroup/user.slice/run-1.scope"),)


def test_path_is_relative_to_the_mounted_part_of_a_hierarchy() -> None:
    """A container without a cgroup namespace sees a part of the hierarchy as the root."""
    mount = "35 31 0:32 /docker/1a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    assert parse_cgroups("4:memory:/docker/1a/jobs\n", mount) == (Hierarchy("memory", "/sys/fs/cgroup/memory/jobs"),)


def test_hierarchy_that_is_not_mounted_is_left_out() -> None:
    assert parse_cgroups("9:rdma:/\n", _SEPARATE) == ()


def test_named_hierarchy_has_the_directory_of_its_name() -> None:
    assert Hierarchy("name=systemd", "/x").mount_name == "systemd"
    assert Hierarchy("cpu,cpuacct", "/x").child("node1") == Hierarchy("cpu,cpuacct", "/x/node1")
