"""Conntrack parameters: the desired values, when they are written, and the errors.

See docs/behaviour/conntrack.md#sysctls and docs/behaviour/upstream-tests.md#conntrack.
"""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from knft.configuration.settings import ConntrackSettings
from knft.errors import ReadOnlySysctlError, UnsupportedError
from knft.kernel import sysctls
from knft.kernel.oom import set_oom_score_adj, unprotect_from_oom
from knft.kernel.sysctls import (
    DifferingValue,
    conntrack_is_liberal,
    desired_values,
    differing_values,
    online_processors,
    set_conntrack,
)
from tests.support.lab.namespace import Namespace

NOTHING = ConntrackSettings(max_per_core=0, minimum=0, tcp_established_timeout=0, tcp_close_wait_timeout=0)
EVERYTHING = ConntrackSettings(
    max_per_core=1000,
    minimum=3000,
    tcp_established_timeout=86400,
    tcp_close_wait_timeout=3600,
    tcp_be_liberal=True,
    udp_timeout=30.5,
    udp_stream_timeout=180,
)
NAMES = (
    "nf_conntrack_max",
    "hashsize",
    "nf_conntrack_tcp_timeout_established",
    "nf_conntrack_tcp_timeout_close_wait",
    "nf_conntrack_tcp_be_liberal",
    "nf_conntrack_udp_timeout",
    "nf_conntrack_udp_timeout_stream",
)


def _named_values(options: ConntrackSettings, count: int = 4) -> list[tuple[str, int]]:
    return [(Path(setting.path).name, setting.value) for setting in desired_values(options, count)]


@pytest.mark.parametrize(
    ("per_core", "minimum", "count", "max_flows"),
    [
        (0, 0, 4, None),
        (0, 131072, 4, None),
        (32768, 131072, 1, 131072),
        (32768, 131072, 4, 131072),
        (32768, 131072, 32, 1048576),
        (32768, 131072, 64, 1048576),
        (32768, 2000000, 4, 2000000),
        (32768, 2000000, 64, 1048576),
        (1, 0, 4, 4),
        (-1, 131072, 4, None),
    ],
)
def test_maximum_number_of_flows(per_core: int, minimum: int, count: int, max_flows: int | None) -> None:
    options = structs.replace(NOTHING, max_per_core=per_core, minimum=minimum)
    expected = [] if max_flows is None else [("nf_conntrack_max", max_flows), ("hashsize", max_flows // 4)]
    assert _named_values(options, count) == expected


def test_all_values_in_kube_proxys_order() -> None:
    """Timeouts are rounded up to whole seconds."""
    assert _named_values(EVERYTHING) == list(zip(NAMES, (4000, 1000, 86400, 3600, 1, 31, 180), strict=True))


def test_no_values_without_options() -> None:
    assert _named_values(NOTHING) == []


def test_kube_proxys_defaults() -> None:
    values = (131072, 32768, 86400, 3600)
    assert _named_values(ConntrackSettings()) == list(zip(NAMES[:4], values, strict=True))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory of a host with four processors in which each parameter is 7."""
    for setting in desired_values(EVERYTHING, 1):
        _write(tmp_path / setting.path, "7")
    _write(tmp_path / sysctls._ONLINE_PROCESSORS, "0-1,4,6")
    return tmp_path


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def _read(root: Path) -> dict[str, str]:
    return {Path(item.path).name: (root / item.path).read_text().strip() for item in desired_values(EVERYTHING, 4)}


def test_differing_values_are_written_and_returned(root: Path) -> None:
    changes = set_conntrack(EVERYTHING, root)
    assert _read(root) == {name: str(value) for name, value in _named_values(EVERYTHING)}
    assert [sentence.partition(": ")[2] for sentence in changes] == [
        f"changed from 7 to {value}" for _, value in _named_values(EVERYTHING)
    ]


def test_differing_values_are_those_that_would_be_written(root: Path) -> None:
    (root / "proc/sys/net/netfilter/nf_conntrack_udp_timeout").unlink()
    found = differing_values(EVERYTHING, root)
    assert len(found) == len(NAMES)
    assert found[0] == DifferingValue("proc/sys/net/netfilter/nf_conntrack_max", "7", 4000)
    assert found[5] == DifferingValue("proc/sys/net/netfilter/nf_conntrack_udp_timeout", "", 31)
    _write(root / found[5].path, "31")
    set_conntrack(EVERYTHING, root)
    assert differing_values(EVERYTHING, root) == ()


def test_desired_values_are_not_written_again(root: Path) -> None:
    """So a container without write permission starts after an init container has set them."""
    set_conntrack(EVERYTHING, root)
    files = [root / setting.path for setting in desired_values(EVERYTHING, 4)]
    before = [file.stat().st_mtime_ns for file in files]
    assert set_conntrack(EVERYTHING, root) == []
    assert [file.stat().st_mtime_ns for file in files] == before


@pytest.mark.parametrize(("before", "after"), [("999", "1000"), ("1000", "1000"), ("1001", "1001")])
def test_hash_table_only_grows(root: Path, before: str, after: str) -> None:
    """It has at least a quarter as many buckets as flows; the kernel rounds up."""
    _write(root / sysctls._HASH_SIZE, before)
    set_conntrack(EVERYTHING, root)
    assert _read(root)["hashsize"] == after


@pytest.mark.parametrize(("before", "after"), [("3999", "4000"), ("4000", "4000"), ("9000", "9000")])
def test_maximum_number_of_flows_is_never_lowered(root: Path, before: str, after: str) -> None:
    """An administrator or another program may have raised it."""
    path = root / "proc/sys/net/netfilter/nf_conntrack_max"
    _write(path, before)
    set_conntrack(EVERYTHING, root)
    assert path.read_text().strip() == after


def test_first_failure_stops(root: Path) -> None:
    """Later parameters stay unchanged."""
    missing = root / "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
    missing.unlink()
    with pytest.raises(UnsupportedError) as refused:
        set_conntrack(EVERYTHING, root)
    assert str(refused.value) == (
        f"could not set conntrack parameters: {missing}: No such file or directory "
        "(current value unknown, desired 3600); "
        "run knft with --init-only in a privileged init container, or leave the parameter unchanged with "
        "--conntrack-tcp-timeout-close-wait=0"
    )
    done = [
        (root / setting.path).read_text().strip()
        for setting in desired_values(EVERYTHING, 4)
        if setting.path not in str(missing)
    ]
    assert done == ["4000", "1000", "86400", "7", "7", "7"]


def test_read_only_file_is_another_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``run`` continues then (tests/app/test_read_only_sysctls.py)."""

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(ReadOnlySysctlError, match="Read-only file system"):
        set_conntrack(EVERYTHING, root)


def test_malformed_value_is_reported(root: Path) -> None:
    _write(root / sysctls._HASH_SIZE, "many")
    with pytest.raises(
        UnsupportedError, match=r"hashsize: not a number \(current value many, desired 1000\); run knft with"
    ):
        set_conntrack(EVERYTHING, root)


@pytest.mark.parametrize(("text", "count"), [("0-1,4,6", 4), ("0", 1), ("0-63", 64), ("", 3), ("nonsense", 3)])
def test_online_processors_of_the_host(root: Path, text: str, count: int) -> None:
    _write(root / sysctls._ONLINE_PROCESSORS, text)
    assert online_processors(root, lambda: 3) == count


def test_processors_without_sysfs(tmp_path: Path) -> None:
    assert online_processors(tmp_path, lambda: 3) == 3
    assert online_processors(tmp_path, lambda: None) == 1


CLOSE_WAIT = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"


@pytest.mark.kernel
def test_parameters_of_the_network_namespace_are_set() -> None:
    """On a real kernel. nf_conntrack_max is global, so no test may change it."""
    namespace = Namespace.create("sysctls")
    namespace.run(["nft", "-f", "-"], stdin="table ip t { chain c { type nat hook output priority 0; }; }")
    options = structs.replace(EVERYTHING, max_per_core=0)
    with namespace.entered():
        changes = set_conntrack(options)
        again = set_conntrack(options)
    assert (len(changes), again) == (5, [])
    for name, value in _named_values(options):
        assert namespace.read_sysctl(f"net.netfilter.{name}") == str(value)
    namespace.close()


@pytest.mark.kernel
def test_read_only_container_starts_after_init_container() -> None:
    """/proc/sys is read-only, as in an unprivileged container."""
    namespace = Namespace.create("read-only")
    namespace.run(["nft", "-f", "-"], stdin="table ip t { chain c { type nat hook output priority 0; }; }")
    code = (
        "from knft.configuration.settings import ConntrackSettings\n"
        "from knft.kernel.sysctls import set_conntrack\n"
        "print(set_conntrack(ConntrackSettings(max_per_core=0)))"
    )
    script = 'mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", code]
    refused = namespace.run(command, check=False)
    assert "nf_conntrack_tcp_timeout_established: Read-only file system (current value " in refused.stderr
    assert ", desired 86400)" in refused.stderr
    namespace.sysctl(CLOSE_WAIT, 3600)
    namespace.sysctl("net.netfilter.nf_conntrack_tcp_timeout_established", 86400)
    assert namespace.run(command).stdout == "[]\n"
    namespace.close()


def test_oom_score_adj_is_set() -> None:
    """Increases it, which needs no privilege, in a process of its own."""
    code = (
        "from pathlib import Path\n"
        "from knft.kernel.oom import set_oom_score_adj\n"
        "print([set_oom_score_adj(None), set_oom_score_adj(500), set_oom_score_adj(500)])\n"
        "print(Path('/proc/self/oom_score_adj').read_text())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["['', '', '']", "500"]


@pytest.mark.parametrize("value", [-500, 500])
def test_children_do_not_keep_a_negative_oom_score_adj(value: int) -> None:
    """Without privilege, the value of the parent process stays as it was."""
    code = (
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        "from knft.kernel.oom import set_oom_score_adj, unprotect_from_oom\n"
        f"set_oom_score_adj({value})\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "unprotect_from_oom(child.pid)\n"
        "print([int(Path(f'/proc/{process}/oom_score_adj').read_text()) for process in ('self', child.pid)])\n"
        "child.kill()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own, inherited = json.loads(done.stdout)
    assert inherited == max(own, 0)
    unprotect_from_oom(2**22 + 1)  # no such process


def test_unwritable_oom_score_adj_is_returned_as_text(tmp_path: Path) -> None:
    assert (
        set_oom_score_adj(-999, tmp_path / "none") == f"cannot set {tmp_path}/none to -999: No such file or directory"
    )


@pytest.mark.parametrize(("content", "is_liberal"), [("1\n", True), ("0\n", False), ("?\n", False), (None, False)])
def test_liberal_conntrack(tmp_path: Path, content: str | None, *, is_liberal: bool) -> None:
    """Without the file, conntrack is not loaded, or the kernel does not tell."""
    file = tmp_path / "proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"
    if content is not None:
        file.parent.mkdir(parents=True)
        file.write_text(content)
    assert conntrack_is_liberal(tmp_path) is is_liberal
