"""A configuration file that changes ends the process; one that is only touched, or is gone, does not (I.4, K.9)."""

import ctypes
import logging
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from knft.configuration.file_content import read_configuration
from knft.configuration.watch import CHANGED, wait_for_change
from knft.errors import ConfigurationChangedError
from knft.source.file_watch import POLL_MS

HANG = 60.0
KNOWN, OTHER = b"mode: nftables\n", b"mode: iptables\n"


class Watch:
    """A thread that waits for a file to change, and how that ended."""

    def __init__(self, path: Path, *, unprivileged: bool = False) -> None:
        """Where it is ``unprivileged``, it may read what everybody may, as once privileges are dropped."""
        self._unprivileged = unprivileged
        self._stop = threading.Event()
        self._ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._wait, args=[str(path), read_configuration(str(path))])
        self._thread.start()

    def _wait(self, path: str, known: bytes) -> None:
        if self._unprivileged:
            # For files, and for this thread alone: without CAP_DAC_OVERRIDE as well.
            ctypes.CDLL(None).setfsuid(65534)
        try:
            wait_for_change(path, known, self._stop)
        except Exception as error:  # noqa: BLE001 - it is what is asserted
            self._ended.put(error)
        else:
            self._ended.put(None)

    def ends(self) -> None:
        """Wait until it has found a change."""
        error = self._ended.get(timeout=HANG)
        assert isinstance(error, ConfigurationChangedError)
        assert str(error) == CHANGED == "content of the proxy server's configuration file was updated"

    def goes_on(self) -> None:
        """Give it several looks at the file; it must not end."""
        with pytest.raises(queue.Empty):
            self._ended.get(timeout=1.5 * POLL_MS / 1000)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(HANG)
        assert not self._thread.is_alive()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file two links away, as in a mounted ConfigMap."""
    first = tmp_path / "..2026_1"
    first.mkdir()
    (first / "config.conf").write_bytes(KNOWN)
    (tmp_path / "..data").symlink_to(first.name)
    (tmp_path / "config.conf").symlink_to("..data/config.conf")
    return tmp_path / "config.conf"


@pytest.fixture
def watch(path: Path) -> Iterator[Watch]:
    made = Watch(path)
    yield made
    made.close()


def swap(path: Path, content: bytes) -> None:
    """Replace a ConfigMap's content as the kubelet does."""
    folder = path.parent
    old = (folder / "..data").readlink()
    new = folder / "..2026_2"
    new.mkdir()
    (new / "config.conf").write_bytes(content)
    (folder / "..data_tmp").symlink_to(new.name)
    (folder / "..data_tmp").rename(folder / "..data")
    (folder / old / "config.conf").unlink()
    (folder / old).rmdir()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def rename(path: Path, content: bytes) -> None:
    made = path.with_name("new")
    made.write_bytes(content)
    made.rename(path)


def relink(path: Path, content: bytes) -> None:
    """Point the file's own link elsewhere, to another folder."""
    made = path.parent / "elsewhere"
    made.mkdir()
    (made / "config.conf").write_bytes(content)
    rename_link = path.with_name("link")
    rename_link.symlink_to("elsewhere/config.conf")
    rename_link.rename(path)


def remove_and_make(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def same_size_and_time(path: Path, content: bytes) -> None:
    """What looks the same from outside: inode, size and time of writing."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path, bytes], None]] = {
    "a ConfigMap is swapped": swap,
    "it is written to": write,
    "another is renamed onto it": rename,
    "it leads elsewhere": relink,
    "it is removed and made": remove_and_make,
    "its size and time stay": same_size_and_time,
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_content_ends_it(path: Path, watch: Watch, name: str) -> None:
    CHANGES[name](path, OTHER)
    watch.ends()


@pytest.mark.parametrize("name", CHANGES)
def test_the_same_content_does_not(path: Path, watch: Watch, name: str) -> None:
    CHANGES[name](path, KNOWN)
    watch.goes_on()


def test_what_is_no_change_does_not_end_it_and_what_follows_does(path: Path, watch: Watch) -> None:
    path.chmod(0o600)
    path.touch()
    (path.parent / "other.conf").write_bytes(OTHER)
    path.unlink()
    watch.goes_on()
    path.mkdir()
    watch.goes_on()
    path.rmdir()
    path.write_bytes(OTHER)
    watch.ends()


def _gone(path: Path) -> None:
    path.unlink()


def _unreadable(path: Path) -> None:
    path.chmod(0)


def _sealed(path: Path) -> None:
    path.parent.chmod(0)


def _readable(path: Path) -> None:
    path.parent.chmod(0o755)
    if path.exists():
        path.chmod(0o644)
    else:
        path.write_bytes(KNOWN)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A file in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.conf"
        path.write_bytes(KNOWN)
        _readable(path)
        yield path
        path.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("close", "why"),
    [(_gone, "No such file or directory"), (_unreadable, "Permission denied"), (_sealed, "Permission denied")],
)
def test_a_file_that_cannot_be_read_any_more_is_told_once_and_when_it_is_over(
    open_path: Path, caplog: pytest.LogCaptureFixture, close: Callable[[Path], None], why: str
) -> None:
    """It does not end the process, whatever the file holds meanwhile; once it can be read, it does."""
    caplog.set_level(logging.INFO, "knft")
    begun = (
        "knft", logging.WARNING,
        f"{open_path}: {why}; knft keeps its configuration and cannot notice changes until the file is readable again",
    )  # fmt: skip
    over = ("knft", logging.INFO, f"{open_path}: readable again")
    with closing(Watch(open_path, unprivileged=True)) as watch:
        for _ in range(2):
            caplog.clear()
            close(open_path)
            _until_told(caplog, begun)
            watch.goes_on()
            assert caplog.record_tuples == [begun]
            _readable(open_path)
            _until_told(caplog, over)
            watch.goes_on()
            assert caplog.record_tuples == [begun, over]
        open_path.write_bytes(OTHER)
        watch.ends()


def _until_told(caplog: pytest.LogCaptureFixture, record: tuple[str, int, str]) -> None:
    deadline = time.monotonic() + HANG
    while record not in caplog.record_tuples:
        assert time.monotonic() < deadline, caplog.record_tuples
        time.sleep(0.01)


def test_a_folder_that_is_gone_is_waited_for(path: Path, watch: Watch) -> None:
    away = path.parent.with_name("away")
    path.parent.rename(away)
    watch.goes_on()
    away.rename(path.parent)
    watch.goes_on()
    swap(path, OTHER)
    watch.ends()


def test_a_change_before_the_first_look_is_found(tmp_path: Path) -> None:
    """Between reading the file and watching it, as much may happen as at any other time."""
    file = tmp_path / "config.conf"
    file.write_bytes(OTHER)
    with pytest.raises(ConfigurationChangedError):
        wait_for_change(str(file), KNOWN, threading.Event())


def test_it_ends_when_it_is_told_to(path: Path) -> None:
    made = Watch(path)
    made.close()
