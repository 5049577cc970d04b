"""The directory is watched without a gap."""

import threading
from pathlib import Path

from knft.source.directory import DirectorySource
from tests.support.bad_manifests import service, text


def test_change_before_the_first_notification_is_found(tmp_path: Path) -> None:
    """Without a tick or another change: the directory is read again as soon as it is watched."""
    (tmp_path / "a.yaml").write_text(text(service("a")))
    source, stop = DirectorySource(str(tmp_path)), threading.Event()
    source.scan()
    (tmp_path / "b.yaml").write_text(text(service("b", 2)))
    watch = source.watch(stop)
    next(watch)
    (change,) = source.scan().changes
    assert change.current is not None
    (tmp_path / "c.yaml").write_text(text(service("c", 3)))
    next(watch)
    assert len(source.scan().changes) == 1
    stop.set()
    assert list(watch) == []


def test_directory_that_is_watched_anew_is_read_again(tmp_path: Path) -> None:
    """A change between the end of one watch and the beginning of the next is found."""
    folder, stop = tmp_path / "manifests", threading.Event()
    folder.mkdir()
    source = DirectorySource(str(folder))
    source.scan()
    watch = source.watch(stop)
    next(watch)
    folder.rename(tmp_path / "away")
    next(watch)
    source.scan()
    folder.mkdir()
    (folder / "a.yaml").write_text(text(service("a")))
    while not source.scan().changes:
        next(watch)
    (folder / "b.yaml").write_text(text(service("b", 2)))
    while not source.scan().changes:
        next(watch)
    stop.set()
