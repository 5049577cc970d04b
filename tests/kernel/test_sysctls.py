"""Conntrack's settings: which there are, when they are written, and what is said where that fails (I.7, K.4)."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from knft.configuration.settings import ConntrackSettings
from knft.errors import UnsupportedError
from knft.kernel import sysctls
from knft.kernel.oom import set_oom_score_adj
from knft.kernel.sysctls import processors, set_conntrack, settings
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


def _decided(wishes: ConntrackSettings, count: int = 4) -> list[tuple[str, int]]:
    return [(Path(setting.path).name, setting.value) for setting in settings(wishes, count)]


@pytest.mark.parametrize(
    ("per_core", "minimum", "count", "most"),
    [
        (0, 0, 4, None),
        (0, 131072, 4, None),
        (32768, 131072, 1, 131072),
        (32768, 131072, 4, 131072),
        (32768, 131072, 64, 2097152),
        (1, 0, 4, 4),
        (-1, 131072, 4, None),
    ],
)
def test_how_many_flows_there_may_be(per_core: int, minimum: int, count: int, most: int | None) -> None:
    wishes = structs.replace(NOTHING, max_per_core=per_core, minimum=minimum)
    expected = [] if most is None else [("nf_conntrack_max", most), ("hashsize", most // 4)]
    assert _decided(wishes, count) == expected


def test_everything_in_order() -> None:
    """Whole seconds, rounded up."""
    assert _decided(EVERYTHING) == list(zip(NAMES, (4000, 1000, 86400, 3600, 1, 31, 180), strict=True))


def test_nothing_is_asked_for_nothing_is_set() -> None:
    assert _decided(NOTHING) == []


def test_kube_proxys_defaults() -> None:
    values = (131072, 32768, 86400, 3600)
    assert _decided(ConntrackSettings()) == list(zip(NAMES[:4], values, strict=True))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder in which every setting is 7, with a machine of four processors."""
    for setting in settings(EVERYTHING, 1):
        _write(tmp_path / setting.path, "7")
    _write(tmp_path / sysctls._ONLINE, "0-1,4,6")
    return tmp_path


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def _read(root: Path) -> dict[str, str]:
    return {Path(item.path).name: (root / item.path).read_text().strip() for item in settings(EVERYTHING, 4)}


def test_what_differs_is_written_and_said(root: Path) -> None:
    said = set_conntrack(EVERYTHING, root)
    assert _read(root) == {name: str(value) for name, value in _decided(EVERYTHING)}
    assert [sentence.partition(": ")[2] for sentence in said] == [
        f"7 becomes {value}" for _, value in _decided(EVERYTHING)
    ]


def test_what_is_as_wished_is_not_written(root: Path) -> None:
    """So that a container that may write none of it starts where an init container has."""
    set_conntrack(EVERYTHING, root)
    files = [root / setting.path for setting in settings(EVERYTHING, 4)]
    before = [file.stat().st_mtime_ns for file in files]
    assert set_conntrack(EVERYTHING, root) == []
    assert [file.stat().st_mtime_ns for file in files] == before


@pytest.mark.parametrize(("before", "after"), [("999", "1000"), ("1000", "1000"), ("1001", "1001")])
def test_the_table_of_flows_only_grows(root: Path, before: str, after: str) -> None:
    """Its size is a quarter of the flows at least: the kernel rounds up what it is told."""
    _write(root / sysctls._HASH_SIZE, before)
    set_conntrack(EVERYTHING, root)
    assert _read(root)["hashsize"] == after


def test_the_first_that_cannot_be_set_ends_it(root: Path) -> None:
    """What comes after it is as it was."""
    missing = root / "proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
    missing.unlink()
    with pytest.raises(UnsupportedError) as refused:
        set_conntrack(EVERYTHING, root)
    assert str(refused.value) == (
        f"could not set conntrack parameters: {missing}: No such file or directory; it is to be 3600, and has nothing "
        "that can be read: let a privileged init container run knft with --init-only, or leave it as it is by "
        "--conntrack-tcp-timeout-close-wait=0"
    )
    done = [
        (root / setting.path).read_text().strip()
        for setting in settings(EVERYTHING, 4)
        if setting.path not in str(missing)
    ]
    assert done == ["4000", "1000", "86400", "7", "7", "7"]


def test_what_is_no_number_is_said(root: Path) -> None:
    _write(root / sysctls._HASH_SIZE, "many")
    with pytest.raises(UnsupportedError, match="hashsize: no number; it is to be 1000, and has many: let a privileged"):
        set_conntrack(EVERYTHING, root)


@pytest.mark.parametrize(("text", "count"), [("0-1,4,6", 4), ("0", 1), ("0-63", 64), ("", 3), ("nonsense", 3)])
def test_processors_are_those_of_the_machine(root: Path, text: str, count: int) -> None:
    _write(root / sysctls._ONLINE, text)
    assert processors(root, lambda: 3) == count


def test_without_sysfs_they_are_those_that_python_counts(tmp_path: Path) -> None:
    assert processors(tmp_path, lambda: 3) == 3
    assert processors(tmp_path, lambda: None) == 1


CLOSE_WAIT = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"


@pytest.mark.kernel
def test_the_namespaces_own_settings_are_set() -> None:
    """Of a real kernel; how many flows there may be is the whole machine's, and no test's to change."""
    namespace = Namespace.create("sysctls")
    namespace.run(["nft", "-f", "-"], stdin="table ip t { chain c { type nat hook output priority 0; }; }")
    wishes = structs.replace(EVERYTHING, max_per_core=0)
    with namespace.entered():
        said = set_conntrack(wishes)
        again = set_conntrack(wishes)
    assert (len(said), again) == (5, [])
    for name, value in _decided(wishes):
        assert namespace.read_sysctl(f"net.netfilter.{name}") == str(value)
    namespace.close()


@pytest.mark.kernel
def test_a_container_that_may_not_write_starts_where_an_init_container_has() -> None:
    """/proc/sys can be read alone, as in a container without privileges."""
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
    assert "nf_conntrack_tcp_timeout_established: Read-only file system; it is to be 86400, and has " in refused.stderr
    namespace.sysctl(CLOSE_WAIT, 3600)
    namespace.sysctl("net.netfilter.nf_conntrack_tcp_timeout_established", 86400)
    assert namespace.run(command).stdout == "[]\n"
    namespace.close()


def test_the_score_for_when_memory_runs_out_is_set() -> None:
    """To a higher one, which takes no privilege; of a process of its own."""
    code = (
        "from pathlib import Path\n"
        "from knft.kernel.oom import set_oom_score_adj\n"
        "print([set_oom_score_adj(None), set_oom_score_adj(500), set_oom_score_adj(500)])\n"
        "print(Path('/proc/self/oom_score_adj').read_text())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["['', '', '']", "500"]


def test_a_score_that_cannot_be_set_is_no_failure(tmp_path: Path) -> None:
    assert (
        set_oom_score_adj(-999, tmp_path / "none")
        == f"{tmp_path}/none cannot be set to -999: No such file or directory"
    )
