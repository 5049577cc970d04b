"""Broken and special files in the directory: they are reported, and all other files are served."""

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knft.errors import SourceError
from knft.source import files
from knft.source.directory import DirectorySource, read_paths
from tests.support import special_files
from tests.support.bad_manifests import scan_and_render, service, text
from tests.support.broken_files import BROKEN, READABLE
from tests.support.cluster_ips import wait_for_cluster_ips
from tests.support.knft_command import KNFT, NODE_FLAG
from tests.support.lab.namespace import Namespace
from tests.support.waiting import TIMEOUT

SILENT = "none of its objects are served"
STAYS = "keeping its last valid objects"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with one good file besides those that a test makes."""
    made = tmp_path / "manifests"
    made.mkdir()
    (made / "other.yaml").write_text(text(service("other", 3)))
    return made


@pytest.mark.parametrize("form", BROKEN)
def test_broken_file_does_not_affect_other_files(folder: Path, form: str) -> None:
    data, said = BROKEN[form]
    (folder / "bad.yaml").write_bytes(data)
    source = DirectorySource(str(folder))
    seen = scan_and_render(source)
    assert seen.problems == (f"{folder}/bad.yaml: {said}; {SILENT}",)
    assert seen.served == {"10.96.0.3"}
    again = source.scan()
    assert (again.changes, again.problems) == ((), ())


@pytest.mark.parametrize("form", BROKEN)
def test_file_that_becomes_broken_keeps_its_objects(folder: Path, form: str) -> None:
    data, said = BROKEN[form]
    (folder / "bad.yaml").write_text(text(service("web", 5)))
    source = DirectorySource(str(folder))
    assert scan_and_render(source).served == {"10.96.0.3", "10.96.0.5"}
    (folder / "bad.yaml").write_bytes(data)
    scan = source.scan()
    assert (scan.changes, scan.problems) == ((), (f"{folder}/bad.yaml: {said}; {STAYS}",))
    (folder / "bad.yaml").unlink()
    (change,) = source.scan().changes
    assert change.current is None


@pytest.mark.parametrize("form", BROKEN)
def test_render_refuses_broken_files(folder: Path, form: str) -> None:
    """Half a ruleset must not be taken for a whole one."""
    data, said = BROKEN[form]
    with pytest.raises(SourceError) as raised:
        read_paths(["-", str(folder)], data)
    assert str(raised.value) == f"-: {said}"


@pytest.mark.parametrize("form", READABLE)
def test_unusual_file_is_read(folder: Path, form: str) -> None:
    (folder / "web.yaml").write_bytes(READABLE[form])
    seen = scan_and_render(DirectorySource(str(folder)))
    assert seen.problems == ()
    assert seen.served == {"10.96.0.3", "10.96.0.5"}


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 << 30)


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a directory": (special_files.directory, "it is a directory, not a regular file"),
    "a FIFO": (special_files.fifo, "it is a FIFO, not a regular file"),
    "a socket": (special_files.unix_socket, "it is a socket, not a regular file"),
    "a link to a device without end": (special_files.device, "it is a device, not a regular file"),
    "a link to itself": (special_files.loop, "Too many levels of symbolic links"),
    "a link to nothing": (special_files.dangling, "No such file or directory"),
    "a file of 100 GiB": (_sparse, f"it has {100 << 30} bytes; the limit is {files.MAX_BYTES}"),
}


@pytest.mark.parametrize("form", STRANGE)
def test_special_file_does_not_affect_other_files(folder: Path, form: str) -> None:
    """It is told once, and found again when it has become a file."""
    make, said = STRANGE[form]
    make(folder / "bad.yaml")
    source = DirectorySource(str(folder))
    seen = scan_and_render(source)
    assert seen.problems == (f"{folder}/bad.yaml: {said}; {SILENT}",)
    assert seen.served == {"10.96.0.3"}
    assert source.scan().problems == ()
    (folder / "bad.yaml").rename(folder / "away")
    (folder / "bad.yaml").write_text(text(service("web", 5)))
    assert len(source.scan().changes) == 1


@pytest.mark.parametrize("form", STRANGE)
def test_render_refuses_special_files(folder: Path, form: str) -> None:
    make, said = STRANGE[form]
    make(folder / "bad.yaml")
    with pytest.raises(SourceError) as raised:
        read_paths([str(folder)], None)
    assert str(raised.value) == f"{folder}/bad.yaml: {said}"


def test_explicitly_named_pipe_is_read() -> None:
    """As in ``knft render -f <(kubectl get ...)``."""
    read, write = os.pipe()
    os.write(write, text(service("web", 5)).encode())
    os.close(write)
    assert len(read_paths([f"/dev/fd/{read}"], None).changes) == 1
    os.close(read)


def test_file_name_with_newline_is_reported_in_one_line(folder: Path) -> None:
    (folder / "a\nb.yaml").write_text("a: [")
    (sentence,) = scan_and_render(DirectorySource(str(folder))).problems
    assert sentence.startswith(repr(f"{folder}/a\nb.yaml") + ": not YAML: line 2")
    assert "\n" not in sentence


def test_empty_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    source = DirectorySource(str(tmp_path))
    said = f"{tmp_path}: contains no *.yaml, *.yml or *.json files; nothing is served"
    assert source.scan().problems == (said,)
    assert source.scan().problems == ()
    (tmp_path / "a.yaml").write_text(text(service("web")))
    assert source.scan().problems == ()
    (tmp_path / "a.yaml").unlink()
    assert source.scan().problems == (said,)
    assert read_paths([str(tmp_path)], None).problems == (said,)


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
    made = Namespace.create("bad-input")
    yield made
    made.close()


class _Follower:
    """knft, following a directory without the right of root to read everything."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        dropped = "-dac_override,-dac_read_search"
        unprivileged = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]
        command = [*unprivileged, *KNFT, "run", "--manifests", str(folder), *NODE_FLAG, "--min-sync-period", "0"]
        self.process = namespace.popen(command, stderr=subprocess.PIPE)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self._lines.put(line)

    def says(self, sentence: str) -> None:
        """Wait until it says exactly that."""
        seen: list[str] = []
        deadline = time.monotonic() + TIMEOUT
        while not any(line.endswith(f" WARNING {sentence}\n") for line in seen[-1:]):
            try:
                seen.append(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                pytest.fail(f"it never said {sentence!r}, but: {''.join(seen)}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.mark.kernel
def test_watched_directory_survives_all_broken_and_special_files(namespace: Namespace, folder: Path) -> None:
    """One process meets every broken file and every strange thing; what it served stays, and it goes on following."""
    web = folder / "web.yaml"
    web.write_text(text(service("web", 5)))
    follower = _Follower(namespace, folder)
    try:
        wait_for_cluster_ips(namespace, {"3", "5"})
        for number, (data, said) in enumerate(BROKEN.values(), start=10):
            web.write_bytes(data)
            follower.says(f"{web}: {said}; {STAYS}")
            (folder / "new.yaml").write_text(text(service("new", number)))
            wait_for_cluster_ips(namespace, {"3", "5", str(number)})
        for number, (make, said) in enumerate(STRANGE.values()):
            thing = folder / f"strange-{number}.yaml"
            make(thing)
            follower.says(f"{thing}: {said}; {SILENT}")
        web.write_text(text(service("web", 6)))
        (folder / "new.yaml").unlink()
        wait_for_cluster_ips(namespace, {"3", "6"})
        assert follower.process.poll() is None
    finally:
        follower.end()


@pytest.mark.kernel
def test_unreadable_file_keeps_its_objects_until_readable(namespace: Namespace, folder: Path) -> None:
    """It keeps its objects, and is read again when it may be, though its content has not changed."""
    web, hidden = folder / "web.yaml", folder / "hidden.yaml"
    web.write_text(text(service("web", 5)))
    hidden.write_text(text(service("hidden", 7)))
    hidden.chmod(0)
    follower = _Follower(namespace, folder)
    try:
        follower.says(f"{hidden}: Permission denied; {SILENT}")
        wait_for_cluster_ips(namespace, {"3", "5"})
        web.chmod(0)
        follower.says(f"{web}: Permission denied; {STAYS}")
        wait_for_cluster_ips(namespace, {"3", "5"})
        hidden.chmod(0o644)
        wait_for_cluster_ips(namespace, {"3", "5", "7"})
    finally:
        follower.end()
