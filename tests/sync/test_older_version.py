"""OlderVersion: a table is left to a process without the instance lock while that runs, and to no other program."""

import pytest
from msgspec import structs

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.sync.older_version import (
    CHANGES_BEFORE_LEAVING,
    MAX_LEFT_SECONDS,
    MEMORY_SECONDS,
    TRIAL_SECONDS,
    OlderVersion,
)

OWN, OTHER = "rules-00000001", "rules-00000002"
INODE = 4711


def _change(*chains: str, process: str = "python (pid 7)") -> ForeignChange:
    return ForeignChange(Family.IPV4, frozenset(chains), process=process)


OTHER_RULES = _change("services", OWN, OTHER)
"""The older version deletes this version's marker chain, and adds its own."""


class OtherProcesses:
    """This process's view of other processes; ``now`` is the time in seconds."""

    def __init__(self, *subscribers: int) -> None:
        self.subscribers = frozenset(subscribers)
        self.older = OlderVersion(OWN, lambda: self.subscribers)
        self.now = 1000.0

    def is_left_after(self, change: ForeignChange) -> bool:
        """Let a sync be followed by this change a second later."""
        self.older.finish_sync()
        self.now += 1
        return self.older.record(change, self.now)

    def changes_until_left(self, change: ForeignChange = OTHER_RULES, most: int = 20) -> int:
        return next((number for number in range(1, most + 1) if self.is_left_after(change)), 0)

    def take_back(self) -> float:
        """Wait until the end is noticed, and take the table back; return the seconds that this took."""
        began = self.now
        while not self.older.has_ended(self.now):
            self.now += 0.5
            assert self.now < began + 2 * MAX_LEFT_SECONDS
        self.older.take_back(self.now)
        return self.now - began


def test_table_is_left_until_the_process_ends() -> None:
    others = OtherProcesses(INODE)
    assert not others.older.has_ended(others.now)
    assert others.changes_until_left() == CHANGES_BEFORE_LEAVING
    assert others.older.has_table()
    assert not others.is_left_after(OTHER_RULES)
    assert not others.older.has_ended(others.now + 1000)
    others.subscribers |= {INODE + 1}
    assert not others.older.has_ended(others.now + 1000)
    others.subscribers = frozenset()
    assert others.older.has_table()
    others.take_back()
    assert not others.older.has_table()


@pytest.mark.parametrize("chains", [(), ("services",), ("services", OWN), ("layout-00000002",)])
def test_table_is_not_left_to_other_programs(chains: tuple[str, ...]) -> None:
    assert OtherProcesses(INODE).changes_until_left(_change(*chains, process="knft-helper (pid 7)")) == 0


def test_deleted_table_is_not_left() -> None:
    """``knft cleanup --force`` deletes it."""
    change = structs.replace(_change("services", OTHER, process="knft (pid 7)"), table_gone=True)
    assert OtherProcesses(INODE).changes_until_left(change) == 0


def test_process_named_knft_may_have_equal_rules() -> None:
    """It may have other objects."""
    change = _change("services", process="knft (pid 7)")
    assert OtherProcesses(INODE).changes_until_left(change) == CHANGES_BEFORE_LEAVING


def test_table_is_not_left_if_no_process_listens() -> None:
    """Such as to a loop of ``nft -f`` with a copy of an older table: without notifications, nobody would repair it."""
    assert OtherProcesses().changes_until_left() == 0


def test_only_the_first_change_after_a_sync_counts() -> None:
    others = OtherProcesses(INODE)
    assert not others.older.record(OTHER_RULES, others.now)
    for number in range(1, CHANGES_BEFORE_LEAVING):
        assert not others.is_left_after(OTHER_RULES), number
        assert not any(others.older.record(OTHER_RULES, others.now) for _ in range(10))
    assert others.is_left_after(OTHER_RULES)


def test_changes_that_are_long_ago_do_not_count() -> None:
    """Such as several upgrades of the cluster, in which two versions run for a short time."""
    others = OtherProcesses(INODE)
    for _ in range(3 * CHANGES_BEFORE_LEAVING):
        assert not others.is_left_after(OTHER_RULES)
        others.now += MEMORY_SECONDS / (CHANGES_BEFORE_LEAVING - 1)


def test_slow_process_is_recognized() -> None:
    """It may have a minimum sync interval of a minute."""
    others = OtherProcesses(INODE)
    for _ in range(CHANGES_BEFORE_LEAVING - 1):
        assert not others.is_left_after(OTHER_RULES)
        others.now += 60
    assert others.is_left_after(OTHER_RULES)


def test_end_of_another_subscriber_costs_less_each_time() -> None:
    """``nft monitor`` ended, and the older version still runs: its next change is enough, and this process waits."""
    others = OtherProcesses(INODE, 1)
    assert others.changes_until_left() == CHANGES_BEFORE_LEAVING
    seconds = []
    for other in range(2, 12):
        others.subscribers = frozenset({INODE, other})
        seconds.append(others.take_back())
        assert others.changes_until_left() == 1
    assert seconds == [1, 2, 4, 8, 16, 32, *[MAX_LEFT_SECONDS] * 4]
    others.subscribers = frozenset()
    assert others.take_back() == MAX_LEFT_SECONDS
    others.now += MEMORY_SECONDS
    others.subscribers = frozenset({INODE})
    assert others.changes_until_left() == CHANGES_BEFORE_LEAVING
    others.subscribers = frozenset()
    assert others.take_back() == 1


def test_table_is_taken_back_after_an_hour_in_any_case() -> None:
    """The subscriber may be another program, and the process may have been a loop of ``nft -f``."""
    others = OtherProcesses(INODE)
    others.changes_until_left()
    assert not others.older.has_ended(others.now + TRIAL_SECONDS - 1)
    others.now += TRIAL_SECONDS
    assert others.take_back() == 0
    assert not others.older.record(OTHER_RULES, others.now)
    assert others.changes_until_left() == 1


def test_unreadable_subscribers_are_an_error_and_change_nothing() -> None:
    def fail() -> frozenset[int]:
        msg = "refused for the test"
        raise KernelError(msg)

    older = OlderVersion(OWN, fail)
    for _ in range(CHANGES_BEFORE_LEAVING - 1):
        older.finish_sync()
        assert not older.record(OTHER_RULES, 0.0)
    older.finish_sync()
    with pytest.raises(KernelError, match="refused for the test"):
        older.record(OTHER_RULES, 0.0)
    assert not older.has_table()
