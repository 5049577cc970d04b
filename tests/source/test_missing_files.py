"""Files that disappear: the directory may be unmounted or swapped, so the last Services stay."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from knft.source.directory import DirectorySource
from knft.source.missing_files import SETTLE_SECONDS
from tests.support.bad_manifests import service, text
from tests.support.fake_clock import FakeClock

EMPTY_LIST = text({"apiVersion": "v1", "kind": "List", "items": []})


class _Watched:
    """A directory with two files of one Service each, and what knft serves of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.served: set[str] = set()
        self.problems: list[str] = []
        folder.mkdir()
        self.write("a", "b")
        self.source = DirectorySource(str(folder), self.clock, lambda: 0.0)
        self.scan()
        assert self.served == {"a", "b"}

    def write(self, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}.yaml").write_text(text(service(name, ord(name))))

    def scan(self) -> None:
        scan = self.source.scan()
        for change in scan.changes:
            if change.previous is not None:
                self.served.discard(change.previous.metadata.name)
            if change.current is not None:
                self.served.add(change.current.metadata.name)
        self.problems += scan.problems

    def settle(self) -> set[str]:
        """Scan, wait as long as any removal waits, and scan again; return what is served then."""
        self.scan()
        self.clock.now += SETTLE_SECONDS
        self.scan()
        return self.served


@pytest.fixture
def watched(tmp_path: Path) -> _Watched:
    return _Watched(tmp_path / "manifests")


def test_file_that_is_deleted_is_removed_after_a_while(watched: _Watched) -> None:
    (watched.folder / "a.yaml").unlink()
    watched.scan()
    assert watched.served == {"a", "b"}
    assert watched.source.is_settling
    assert watched.settle() == {"b"}
    assert (watched.source.is_settling, watched.source.status.missing, watched.problems) == (False, 0, [])


def test_file_that_is_deleted_and_written_again_stays(watched: _Watched) -> None:
    (watched.folder / "a.yaml").unlink()
    watched.scan()
    watched.write("a")
    assert watched.settle() == {"a", "b"}


def test_last_service_stays_if_all_files_are_deleted(watched: _Watched) -> None:
    """Until a file with an empty List says that there are none."""
    for path in watched.folder.iterdir():
        path.unlink()
    watched.clock.now += 1e6
    assert watched.settle() == {"a", "b"}
    assert watched.source.status.missing == 2
    (problem,) = watched.problems
    assert problem == (
        f"{watched.folder}: 2 files, such as a.yaml, are missing, and no Service is left in the directory; keeping the "
        "objects; to remove them, add a file with an empty List (apiVersion: v1, kind: List, items: [])"
    )
    assert watched.source.status.conditions == (problem,)
    (watched.folder / "none.yaml").write_text(EMPTY_LIST)
    assert watched.settle() == set()
    assert watched.source.status.missing == 0
    assert list(watched.source.status.conditions) == []


def test_files_that_define_no_service_do_not_count(watched: _Watched) -> None:
    for name in ("a", "b"):
        (watched.folder / f"{name}.yaml").unlink()
    (watched.folder / "kustomization.yaml").write_text("apiVersion: v1\nkind: ConfigMap\n")
    assert watched.settle() == {"a", "b"}


def test_files_that_are_written_one_after_the_other_replace_all(watched: _Watched) -> None:
    """``rm DIR/*; cp ... DIR`` keeps each Service until it is written again, or not written for a while."""
    for path in watched.folder.iterdir():
        path.unlink()
    watched.settle()
    watched.write("b")
    watched.scan()
    watched.write("a")
    assert watched.settle() == {"a", "b"}
    (watched.folder / "a.yaml").unlink()
    assert watched.settle() == {"b"}


def _swap(folder: Path, *names: str) -> None:
    """Replace the directory by another one with these files."""
    shutil.rmtree(folder)
    folder.mkdir()
    for name in names:
        (folder / f"{name}.yaml").write_text(text(service(name, ord(name))))


def test_objects_of_a_replaced_directory_stay(watched: _Watched) -> None:
    """The new directory may be a mount point whose file system is not mounted; its files are served too."""
    _swap(watched.folder, "c")
    watched.clock.now += 1e6
    assert watched.settle() == {"a", "b", "c"}
    assert watched.source.status.missing == 2
    (problem,) = watched.problems
    assert "and another directory was mounted or created at this path" in problem
    (watched.folder / "c.yaml").unlink()
    watched.write("a")
    assert watched.settle() == {"a", "b"}
    (watched.folder / "list.yaml").write_text(EMPTY_LIST)
    assert watched.settle() == {"a"}


def test_directory_that_comes_back_is_used_again(watched: _Watched) -> None:
    away = watched.folder.with_name("away")
    watched.folder.rename(away)
    watched.folder.mkdir()
    watched.settle()
    watched.folder.rmdir()
    away.rename(watched.folder)
    assert watched.settle() == {"a", "b"}
    assert watched.source.status.missing == 0
    (watched.folder / "a.yaml").unlink()
    assert watched.settle() == {"b"}


def test_missing_directory_counts_all_files_as_missing(watched: _Watched) -> None:
    shutil.rmtree(watched.folder)
    assert watched.settle() == {"a", "b"}
    assert (watched.source.status.read, watched.source.status.missing) == (0, 2)
    assert watched.source.status.conditions == tuple(watched.problems)


@pytest.mark.parametrize(
    ("names", "expected"), [("c", {"c"}), ("", {"a", "b"})], ids=["with a Service", "empty directory"]
)
def test_symbolic_link_to_another_directory_replaces_all(tmp_path: Path, names: str, expected: set[str]) -> None:
    """Programs such as git-sync change the link; an empty directory is never meant."""
    watched = _Watched(tmp_path / "v1")
    (tmp_path / "current").symlink_to("v1")
    watched.source = DirectorySource(str(tmp_path / "current"), watched.clock, lambda: 0.0)
    watched.scan()
    (tmp_path / "v2").mkdir()
    for name in names:
        (tmp_path / "v2" / f"{name}.yaml").write_text(text(service(name, ord(name))))
    (tmp_path / "new").symlink_to("v2")
    (tmp_path / "new").rename(tmp_path / "current")
    assert watched.settle() == expected


@pytest.mark.parametrize("at", ["later", "at start"])
def test_empty_directory_at_start_is_incomplete(tmp_path: Path, at: str) -> None:
    source = DirectorySource(str(tmp_path))
    if at == "at start":
        (tmp_path / "none.yaml").write_text(EMPTY_LIST)
        source.scan()
        assert source.status.incomplete_reason == ""
        return
    source.scan()
    assert source.status.incomplete_reason == f"{tmp_path}: no file contains a Service or an empty List"
    (tmp_path / "a.yaml").write_text(text(service("a")))
    source.scan()
    assert source.status.incomplete_reason == ""


def test_changes_of_the_whole_directory_remove_no_service(tmp_path: Path) -> None:
    """A Service stays until its own file is deleted or edited."""
    watched = _Watched(tmp_path / "manifests")
    away = tmp_path / "away"
    steps: dict[str, Callable[[], object]] = {
        "hide": watched.folder.mkdir,
        "show": watched.folder.rmdir,
        "remove": lambda: watched.folder.rename(away),
        "restore": lambda: away.rename(watched.folder),
    }
    for step in ("remove", "hide", "show", "restore", "remove", "restore"):
        steps[step]()
        assert watched.settle() == {"a", "b"}, step
