"""Files that are being written, or were cut: knft reads them when they are complete."""

import math
import os
import subprocess
from pathlib import Path

import pytest

from knft.source import files
from knft.source.decode import decode
from knft.source.directory import TRUNCATED_SECONDS, DirectorySource
from knft.source.missing_files import SETTLE_SECONDS
from knft.source.open_writers import has_writer
from tests.support.bad_manifests import scan_and_render, service, text
from tests.support.fake_clock import FakeClock

WEB, API = text(service("web", 5)), text(service("api", 6))
BOTH = f"{WEB}---\n{API}"


def _names(source: DirectorySource) -> set[tuple[str, bool]]:
    """Return the names of the changed objects, and whether they exist now."""
    changes = source.scan().changes
    return {
        (item.metadata.name, change.current is not None)
        for change in changes
        if (item := change.current or change.previous) is not None
    }


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def source(tmp_path: Path, clock: FakeClock) -> DirectorySource:
    """Return a source of one file with two Services, which it has read."""
    (tmp_path / "a.yaml").write_text(BOTH)
    source = DirectorySource(str(tmp_path), clock, lambda: 0.0)
    source.scan()
    assert source.status.incomplete_reason == ""
    return source


def test_file_is_read_when_its_writer_closes_it(source: DirectorySource, tmp_path: Path, clock: FakeClock) -> None:
    """However long the writer pauses, and though the part that it has written is valid."""
    with (tmp_path / "a.yaml").open("w") as file:
        assert _names(source) == set()
        file.write(WEB)
        file.flush()
        clock.now += 1000
        assert _names(source) == set()
        assert (source.status.unsettled, source.is_settling) == (1, True)
        (condition,) = source.status.conditions
        reason = "another process has it open for writing; knft reads it when it is complete"
        assert condition == f"{tmp_path}/a.yaml: {reason}"
        file.write(f"---\n{API}---\n{text(service('new', 7))}")
    assert _names(source) == {("new", True)}
    assert (source.status.read, source.status.unsettled) == (1, 0)


def test_file_that_is_open_for_writing_at_start_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.yaml").open("w") as file:
        file.write(WEB)
        file.flush()
        source = DirectorySource(str(tmp_path))
        assert _names(source) == set()
        assert "open for writing" in source.status.incomplete_reason
    assert _names(source) == {("web", True)}
    assert source.status.incomplete_reason == ""


def test_file_that_is_written_in_several_steps_keeps_its_objects(
    source: DirectorySource, tmp_path: Path, clock: FakeClock
) -> None:
    """For example ``kubectl get services > FILE; kubectl get endpointslices >> FILE``."""
    (tmp_path / "a.yaml").write_text(WEB)
    assert _names(source) == set()
    clock.now += SETTLE_SECONDS / 2
    assert _names(source) == set()
    with (tmp_path / "a.yaml").open("a") as file:
        file.write(f"---\n{API}")
    assert _names(source) == set()
    assert source.status.unsettled == 0


def test_object_that_is_deleted_from_a_file_is_removed_when_the_file_is_quiet(
    source: DirectorySource, tmp_path: Path, clock: FakeClock
) -> None:
    (tmp_path / "a.yaml").write_text(WEB)
    assert _names(source) == set()
    assert source.is_settling
    clock.now += SETTLE_SECONDS
    assert _names(source) == {("api", False)}
    assert not source.is_settling


def test_file_without_objects_keeps_its_objects_unless_it_has_an_empty_list(
    source: DirectorySource, tmp_path: Path, clock: FakeClock
) -> None:
    (tmp_path / "a.yaml").write_text("# nothing yet\n---\n")
    scan = source.scan()
    reason = "it contains no objects, and no empty List; keeping its last valid objects"
    assert (scan.changes, scan.problems) == ((), (f"{tmp_path}/a.yaml: {reason}",))
    (tmp_path / "a.yaml").write_text("{apiVersion: v1, kind: List, items: []}")
    source.scan()
    clock.now += SETTLE_SECONDS
    assert _names(source) == {("web", False), ("api", False)}


def test_file_that_replaces_another_one_is_used_at_once(source: DirectorySource, tmp_path: Path) -> None:
    """A rename is atomic."""
    (tmp_path / "new").write_text(WEB)
    (tmp_path / "new").rename(tmp_path / "a.yaml")
    assert _names(source) == {("api", False)}


def test_file_without_a_newline_at_its_end_is_complete_if_it_has_no_writer(tmp_path: Path) -> None:
    """At start, and when it loses an object. kubectl accepts such a file."""
    (tmp_path / "a.yaml").write_text(BOTH.rstrip("\n"))
    source = DirectorySource(str(tmp_path))
    assert _names(source) == {("web", True), ("api", True)}
    assert source.status.incomplete_reason == ""
    (tmp_path / "new").write_text(WEB.rstrip("\n"))
    (tmp_path / "new").rename(tmp_path / "a.yaml")
    assert _names(source) == {("api", False)}


def test_file_without_a_newline_at_its_end_may_be_truncated_if_the_kernel_does_not_tell_its_writers(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used, at start and when it loses an object, when it has not changed for ``TRUNCATED_SECONDS``."""
    monkeypatch.setattr(files, "has_writer", lambda _: None)
    reason = "no newline at the end of the file; it may be truncated; knft reads it when it is complete"
    source = DirectorySource(str(tmp_path), clock, lambda: 0.0)
    for content, changes in ((BOTH, {("web", True), ("api", True)}), (WEB, {("api", False)})):
        (tmp_path / "new").write_text(content.rstrip("\n"))
        (tmp_path / "new").rename(tmp_path / "a.yaml")
        assert _names(source) == set()
        clock.now += SETTLE_SECONDS
        assert _names(source) == set()
        assert source.status.conditions == (f"{tmp_path}/a.yaml: {reason}",)
        assert source.is_settling
        clock.now += TRUNCATED_SECONDS - SETTLE_SECONDS
        assert _names(source) == changes
        assert (source.status.unsettled, source.status.incomplete_reason) == (0, "")


def test_objects_without_a_newline_after_them_are_added_without_that_delay(
    source: DirectorySource, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "has_writer", lambda _: None)
    (tmp_path / "a.yaml").write_text(f"{BOTH}---\n{text(service('new', 7))}".rstrip("\n"))
    assert _names(source) == set()
    clock.now += SETTLE_SECONDS
    assert _names(source) == {("new", True)}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"{WEB}---\napiVersion: v1\nkind: Service\n", "invalid objects were skipped (1)"),
        ("a: [", "not YAML: line 2, column 1: did not find expected node content"),
        ("", "the file is empty"),
        ("kind: ConfigMap\napiVersion: v1\n", "no file contains a Service or an empty List"),
    ],
    ids=["cut in an object", "not YAML", "empty", "without Services"],
)
def test_objects_are_incomplete_until_every_file_was_read(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "a.yaml").write_text(content)
    source = DirectorySource(str(tmp_path))
    scan_and_render(source)
    assert reason in source.status.incomplete_reason
    (tmp_path / "a.yaml").write_text(BOTH)
    source.scan()
    assert source.status.incomplete_reason == ""
    (tmp_path / "a.yaml").write_text("a: [")
    source.scan()
    assert source.status.incomplete_reason == ""


def test_every_prefix_of_a_file_that_is_open_for_writing_is_incomplete(tmp_path: Path) -> None:
    with (tmp_path / "a.yaml").open("wb", buffering=0) as file:
        for byte in BOTH.encode():
            file.write(bytes([byte]))
            source = DirectorySource(str(tmp_path))
            assert source.scan().changes == ()
            assert source.status.incomplete_reason


def test_every_prefix_of_a_file_is_incomplete_or_ends_a_line_if_the_kernel_does_not_tell_its_writers(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a file that was cut between two lines can look complete."""
    monkeypatch.setattr(files, "has_writer", lambda _: None)
    data = BOTH.encode()
    for length in range(1, len(data)):
        (tmp_path / "a.yaml").write_bytes(data[:length])
        source = DirectorySource(str(tmp_path), clock, lambda: 0.0)
        source.scan()
        clock.now += SETTLE_SECONDS
        source.scan()
        assert source.status.incomplete_reason or data[length - 1 : length] == b"\n"


def test_quiet_file_is_read_if_the_kernel_does_not_tell_its_writers(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "has_writer", lambda _: None)
    wall_clock = FakeClock(0.0)
    (tmp_path / "a.yaml").write_text(WEB)
    source = DirectorySource(str(tmp_path), clock, wall_clock)
    assert _names(source) == set()
    assert "it has just changed" in source.status.incomplete_reason
    clock.now += SETTLE_SECONDS
    assert _names(source) == {("web", True)}
    later = DirectorySource(str(tmp_path), clock, wall_clock)
    wall_clock.now = (
        math.ceil((tmp_path / "a.yaml").stat().st_ctime) + SETTLE_SECONDS
    )  # exact, unlike a sum with a fraction
    assert _names(later) == {("web", True)}


def test_writers_of_other_processes_are_found(tmp_path: Path) -> None:
    """Also after they have closed the file and opened it again; readers do not count."""
    path = tmp_path / "a"
    path.touch()
    reader = os.open(path, os.O_RDONLY)
    with path.open("a") as output:
        writer = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=output)
    assert has_writer(reader)
    writer.communicate()
    assert has_writer(reader) is False
    os.close(reader)


def test_empty_list_is_recognized_by_its_items() -> None:
    assert decode(b"{apiVersion: v1, kind: List, items: []}").has_empty_list
    assert decode(b'{"apiVersion": "v1", "kind": "ServiceList", "items": []}').has_empty_list
    for other in (b"apiVersion: v1\nkind: List\nitems:\n", b"apiVersion: v1\nkind: List\n", WEB.encode()):
        assert not decode(other).has_empty_list
