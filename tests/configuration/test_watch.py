"""Watching the configuration file: new content ends the watch; a new time or a missing or unreadable file does not."""

import ctypes
import logging
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from knft.configuration import watch as configuration_watch
from knft.configuration.file_content import read_configuration
from knft.configuration.watch import SETTLE_SECONDS, wait_for_change
from knft.errors import ConfigurationChangedError
from tests.support.waiting import wait_until

TIMEOUT = 60.0
CHECK_SECONDS = 0.2
"""A fifth of knft's: the tests wait for longer, to see that nothing happens."""
OLD_CONTENT, NEW_CONTENT = b"mode: nftables\n", b"mode: iptables\n"


class Watch:
    """A thread that runs ``wait_for_change``, and its result."""

    def __init__(self, path: Path, *, unprivileged: bool = False) -> None:
        """Start the thread; if ``unprivileged``, file permissions apply to it, as after knft drops its privileges."""
        self._unprivileged = unprivileged
        self._stop = threading.Event()
        self._ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._wait, args=[str(path), read_configuration(str(path))])
        self._thread.start()

    def _wait(self, path: str, known: bytes) -> None:
        if self._unprivileged:
            # Changes the user for file access of this thread only, and so removes CAP_DAC_OVERRIDE too.
            ctypes.CDLL(None).setfsuid(65534)
        try:
            wait_for_change(path, known, self._stop)
        except Exception as error:  # noqa: BLE001 - the tests assert which error it is
            self._ended.put(error)
        else:
            self._ended.put(None)

    def expect_change(self) -> None:
        """Wait until the watch reports a change."""
        error = self._ended.get(timeout=TIMEOUT)
        assert isinstance(error, ConfigurationChangedError)
        assert str(error).endswith(": the content changed; exiting, to be restarted with the new configuration")

    def expect_no_change(self) -> None:
        """Wait for longer than a check and the time that new content must last; the watch must not end."""
        with pytest.raises(queue.Empty):
            self._ended.get(timeout=2 * CHECK_SECONDS + SETTLE_SECONDS)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def _frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration_watch, "CHECK_SECONDS", CHECK_SECONDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file behind two symbolic links, as in a mounted ConfigMap."""
    first = tmp_path / "..2026_1"
    first.mkdir()
    (first / "config.conf").write_bytes(OLD_CONTENT)
    (tmp_path / "..data").symlink_to(first.name)
    (tmp_path / "config.conf").symlink_to("..data/config.conf")
    return tmp_path / "config.conf"


@pytest.fixture
def watch(path: Path) -> Iterator[Watch]:
    watching = Watch(path)
    yield watching
    watching.close()


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
    new = path.with_name("new")
    new.write_bytes(content)
    new.rename(path)


def relink(path: Path, content: bytes) -> None:
    """Point the file's symbolic link to a file in another folder."""
    folder = path.parent / "elsewhere"
    folder.mkdir()
    (folder / "config.conf").write_bytes(content)
    link = path.with_name("link")
    link.symlink_to("elsewhere/config.conf")
    link.rename(path)


def remove_and_make(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def same_size_and_time(path: Path, content: bytes) -> None:
    """Write content so that inode and modification time stay the same."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path, bytes], None]] = {
    "a ConfigMap is swapped": swap,
    "the file is written": write,
    "another file is renamed onto it": rename,
    "its link leads to another folder": relink,
    "it is removed and made again": remove_and_make,
    "its size and time stay the same": same_size_and_time,
}


@pytest.mark.parametrize("name", CHANGES)
def test_new_content_ends_the_watch(path: Path, watch: Watch, name: str) -> None:
    CHANGES[name](path, NEW_CONTENT)
    watch.expect_change()


@pytest.mark.parametrize("name", CHANGES)
def test_same_content_does_not_end_the_watch(path: Path, watch: Watch, name: str) -> None:
    CHANGES[name](path, OLD_CONTENT)
    watch.expect_no_change()


def test_removed_file_does_not_end_the_watch_until_it_has_new_content(path: Path, watch: Watch) -> None:
    path.chmod(0o600)
    path.touch()
    (path.parent / "other.conf").write_bytes(NEW_CONTENT)
    path.unlink()
    watch.expect_no_change()
    path.mkdir()
    watch.expect_no_change()
    path.rmdir()
    path.write_bytes(NEW_CONTENT)
    watch.expect_change()


def _remove(path: Path) -> None:
    path.unlink()


def _deny_file(path: Path) -> None:
    path.chmod(0)


def _deny_folder(path: Path) -> None:
    path.parent.chmod(0)


def _restore(path: Path) -> None:
    path.parent.chmod(0o755)
    if path.exists():
        path.chmod(0o644)
    else:
        path.write_bytes(OLD_CONTENT)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Return a file in a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.conf"
        path.write_bytes(OLD_CONTENT)
        _restore(path)
        yield path
        path.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("make_unreadable", "reason"),
    [(_remove, "No such file or directory"), (_deny_file, "Permission denied"), (_deny_folder, "Permission denied")],
)
def test_unreadable_file_is_logged_once_and_again_once_it_is_readable(
    open_path: Path, caplog: pytest.LogCaptureFixture, make_unreadable: Callable[[Path], None], reason: str
) -> None:
    """An unreadable file does not end the watch; new content in the readable file does."""
    caplog.set_level(logging.INFO, "knft")
    unreadable = (
        "knft",
        logging.WARNING,
        (
            f"{open_path}: {reason}; "
            "knft keeps its configuration and cannot notice changes until the file is readable again"
        ),
    )
    readable = ("knft", logging.INFO, f"{open_path}: readable again")
    with closing(Watch(open_path, unprivileged=True)) as watch:
        for _ in range(2):
            caplog.clear()
            make_unreadable(open_path)
            _wait_for_record(caplog, unreadable)
            watch.expect_no_change()
            assert caplog.record_tuples == [unreadable]
            _restore(open_path)
            _wait_for_record(caplog, readable)
            watch.expect_no_change()
            assert caplog.record_tuples == [unreadable, readable]
        open_path.write_bytes(NEW_CONTENT)
        watch.expect_change()


def _wait_for_record(caplog: pytest.LogCaptureFixture, record: tuple[str, int, str]) -> None:
    wait_until(lambda: record in caplog.record_tuples, lambda: caplog.record_tuples)


def test_missing_folder_does_not_end_the_watch(path: Path, watch: Watch) -> None:
    away = path.parent.with_name("away")
    path.parent.rename(away)
    watch.expect_no_change()
    away.rename(path.parent)
    watch.expect_no_change()
    swap(path, NEW_CONTENT)
    watch.expect_change()


def test_change_before_the_watch_starts_ends_it(tmp_path: Path) -> None:
    """The file may change after it was read and before it is watched."""
    file = tmp_path / "config.conf"
    file.write_bytes(NEW_CONTENT)
    with pytest.raises(ConfigurationChangedError):
        wait_for_change(str(file), OLD_CONTENT, threading.Event())


def test_watch_stops_on_request(path: Path) -> None:
    watch = Watch(path)
    watch.close()
