"""Broken and special files in the directory: they are reported, and all other files are served."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knft.errors import SourceError
from knft.source import files
from knft.source.directory import DirectorySource
from knft.source.missing_files import SETTLE_SECONDS
from knft.source.paths import read_paths
from tests.support import special_files
from tests.support.bad_manifests import scan_and_render, service, text
from tests.support.broken_files import BROKEN, READABLE
from tests.support.cluster_ips import wait_for_cluster_ips
from tests.support.fake_clock import FakeClock
from tests.support.followed_process import FollowedProcess
from tests.support.knft_command import KNFT, NODE_FLAG
from tests.support.lab.namespace import Namespace

NOT_SERVED = "the file is ignored"
KEPT = "keeping its last valid objects"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a directory with one valid file."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "other.yaml").write_text(text(service("other", 3)))
    return folder


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_does_not_affect_other_files(folder: Path, name: str) -> None:
    data, problem = BROKEN[name]
    (folder / "bad.yaml").write_bytes(data)
    source = DirectorySource(str(folder))
    result = scan_and_render(source)
    assert result.problems == (f"{folder}/bad.yaml: {problem}; {NOT_SERVED}",)
    assert result.served == {"10.96.0.3"}
    second_scan = source.scan()
    assert (second_scan.changes, second_scan.problems) == ((), ())


@pytest.mark.parametrize("name", BROKEN)
def test_file_that_becomes_broken_keeps_its_objects(folder: Path, name: str) -> None:
    data, problem = BROKEN[name]
    (folder / "bad.yaml").write_text(text(service("web", 5)))
    clock = FakeClock()
    source = DirectorySource(str(folder), clock)
    assert scan_and_render(source).served == {"10.96.0.3", "10.96.0.5"}
    (folder / "bad.yaml").write_bytes(data)
    scan = source.scan()
    assert (scan.changes, scan.problems) == ((), (f"{folder}/bad.yaml: {problem}; {KEPT}",))
    (folder / "bad.yaml").unlink()
    assert source.scan().changes == ()
    clock.now += SETTLE_SECONDS
    (change,) = source.scan().changes
    assert change.current is None


@pytest.mark.parametrize("name", BROKEN)
def test_render_refuses_broken_files(folder: Path, name: str) -> None:
    """A partial ruleset could be mistaken for a complete one."""
    data, problem = BROKEN[name]
    with pytest.raises(SourceError) as raised:
        read_paths(["-", str(folder)], data)
    assert str(raised.value) == f"-: {problem}"


@pytest.mark.parametrize("name", READABLE)
def test_unusual_file_is_read(folder: Path, name: str) -> None:
    (folder / "web.yaml").write_bytes(READABLE[name])
    result = scan_and_render(DirectorySource(str(folder)))
    assert result.problems == ()
    assert result.served == {"10.96.0.3", "10.96.0.5"}


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 << 30)


SPECIAL_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "directory": (special_files.directory, "it is a directory, not a regular file"),
    "FIFO": (special_files.fifo, "it is a FIFO, not a regular file"),
    "socket": (special_files.unix_socket, "it is a socket, not a regular file"),
    "link to a device": (special_files.device, "it is a device, not a regular file"),
    "link to itself": (special_files.symlink_loop, "Too many levels of symbolic links"),
    "dangling link": (special_files.dangling_symlink, "No such file or directory"),
    "file of 100 GiB": (_sparse, f"it has {100 << 30} bytes; the limit is {files.MAX_BYTES}"),
}


@pytest.mark.parametrize("name", SPECIAL_FILES)
def test_special_file_does_not_affect_other_files(folder: Path, name: str) -> None:
    """It is reported once, and read when a regular file replaces it."""
    make, problem = SPECIAL_FILES[name]
    make(folder / "bad.yaml")
    source = DirectorySource(str(folder))
    result = scan_and_render(source)
    assert result.problems == (f"{folder}/bad.yaml: {problem}; {NOT_SERVED}",)
    assert result.served == {"10.96.0.3"}
    assert source.scan().problems == ()
    (folder / "bad.yaml").rename(folder / "away")
    (folder / "bad.yaml").write_text(text(service("web", 5)))
    assert len(source.scan().changes) == 1


@pytest.mark.parametrize("name", SPECIAL_FILES)
def test_render_refuses_special_files(folder: Path, name: str) -> None:
    make, problem = SPECIAL_FILES[name]
    make(folder / "bad.yaml")
    with pytest.raises(SourceError) as raised:
        read_paths([str(folder)], None)
    assert str(raised.value) == f"{folder}/bad.yaml: {problem}"


def test_explicitly_named_pipe_is_read() -> None:
    """An example is ``knft render -f <(kubectl get ...)``."""
    read, write = os.pipe()
    os.write(write, text(service("web", 5)).encode())
    os.close(write)
    assert len(read_paths([f"/dev/fd/{read}"], None).changes) == 1
    os.close(read)


def test_file_without_a_size_is_limited() -> None:
    """The kernel's files have no size, and a file may grow while it is read."""
    path = Path("/proc/self/status")
    assert path.stat().st_size == 0
    assert b"VmRSS" in files.read_manifest(path)
    with pytest.raises(SourceError, match=r"^it is larger than the limit of 10 bytes$"):
        files.read_manifest(path, 10)


def test_file_name_with_newline_is_reported_in_one_line(folder: Path) -> None:
    (folder / "a\nb.yaml").write_text("a: [")
    (message,) = scan_and_render(DirectorySource(str(folder))).problems
    assert message.startswith(repr(f"{folder}/a\nb.yaml") + ": not YAML: line 2")
    assert "\n" not in message


def test_empty_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    source = DirectorySource(str(tmp_path))
    problem = f"{tmp_path}: contains no *.yaml, *.yml or *.json files"
    assert source.scan().problems == (problem,)
    assert source.scan().problems == ()
    (tmp_path / "a.yaml").write_text(text(service("web")))
    assert source.scan().problems == ()
    (tmp_path / "a.yaml").unlink()
    assert read_paths([str(tmp_path)], None).problems == (f"{problem}; nothing is served",)


def test_missing_directory_is_reported_once(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    source = DirectorySource(str(folder))
    source.scan()
    folder.rmdir()
    reason = f"{folder}: cannot read the manifest directory: No such file or directory"
    assert source.scan().problems == (f"{reason}; keeping the last valid objects",)
    assert source.scan().problems == ()


def test_directory_replaced_by_a_file_keeps_its_objects(folder: Path) -> None:
    source = DirectorySource(str(folder))
    source.scan()
    folder.rename(folder.with_name("away"))
    folder.write_text("a: b")
    reason = f"{folder}: cannot read the manifest directory: Not a directory"
    scan = source.scan()
    assert (scan.changes, scan.problems) == ((), (f"{reason}; keeping the last valid objects",))


def test_file_instead_of_directory_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text(service("web")))
    with pytest.raises(SourceError) as raised:
        DirectorySource(str(tmp_path / "a.yaml")).scan()
    reason = "cannot read the manifest directory: Not a directory"
    assert str(raised.value) == f"{tmp_path}/a.yaml: {reason}"


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    namespace = Namespace.create("bad-input")
    yield namespace
    namespace.close()


def _start_without_root_access(namespace: Namespace, folder: Path) -> FollowedProcess:
    """Start ``knft run --manifests``, without root's capabilities to read all files."""
    dropped = "-dac_override,-dac_read_search"
    unprivileged = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]
    command = [*unprivileged, *KNFT, "run", "--manifests", str(folder), *NODE_FLAG, "--min-sync-period", "0"]
    return FollowedProcess(namespace, command)


@pytest.mark.kernel
def test_watched_directory_survives_all_broken_and_special_files(namespace: Namespace, folder: Path) -> None:
    """One process reads all of them, keeps serving its objects, and continues to watch the directory."""
    web = folder / "web.yaml"
    web.write_text(text(service("web", 5)))
    knft = _start_without_root_access(namespace, folder)
    try:
        wait_for_cluster_ips(namespace, {"3", "5"})
        previous = ""
        for number, (data, problem) in enumerate(BROKEN.values(), start=10):
            web.write_bytes(data)
            # A problem that lasts is logged again after a minute only.
            if problem != previous:
                knft.wait_for_line(f"] {web}: {problem}; {KEPT}")
            previous = problem
            (folder / "new.yaml").write_text(text(service("new", number)))
            wait_for_cluster_ips(namespace, {"3", "5", str(number)})
        for number, (make, problem) in enumerate(SPECIAL_FILES.values()):
            special = folder / f"special-{number}.yaml"
            make(special)
            knft.wait_for_line(f"] {special}: {problem}; {NOT_SERVED}")
        web.write_text(text(service("web", 6)))
        (folder / "new.yaml").unlink()
        wait_for_cluster_ips(namespace, {"3", "6"})
        assert knft.process.poll() is None
    finally:
        knft.kill()


@pytest.mark.kernel
def test_unreadable_file_keeps_its_objects_until_readable(namespace: Namespace, folder: Path) -> None:
    """It is read as soon as its permissions allow, though its content has not changed."""
    web, hidden = folder / "web.yaml", folder / "hidden.yaml"
    web.write_text(text(service("web", 5)))
    hidden.write_text(text(service("hidden", 7)))
    hidden.chmod(0)
    knft = _start_without_root_access(namespace, folder)
    try:
        knft.wait_for_line(f"] {hidden}: Permission denied; {NOT_SERVED}")
        wait_for_cluster_ips(namespace, {"3", "5"})
        web.chmod(0)
        knft.wait_for_line(f"] {web}: Permission denied; {KEPT}")
        wait_for_cluster_ips(namespace, {"3", "5"})
        hidden.chmod(0o644)
        wait_for_cluster_ips(namespace, {"3", "5", "7"})
    finally:
        knft.kill()


@pytest.mark.parametrize("path", ["/dev/zero", "-"])
def test_endless_input_is_an_error(path: str) -> None:
    """knft reads no more of a device or of standard input than of a file."""
    with Path("/dev/zero").open("rb") as zero:
        done = subprocess.run(
            [*KNFT, "render", "-f", path, *NODE_FLAG], stdin=zero, capture_output=True, text=True, check=False
        )
    message = f"knft: {path}: it is larger than the limit of {files.MAX_BYTES} bytes\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
