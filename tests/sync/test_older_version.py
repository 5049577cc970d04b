"""OlderVersion: a table is left to a process without the instance lock while that runs, and to no other program."""

import pytest

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.sync.older_version import CHANGES_BEFORE_LEAVING, MAX_LEFT_SECONDS, MEMORY_SECONDS, OlderVersion

OWN, OTHER = "rules-00000001", "rules-00000002"
INODE = 4711


def _change(*chains: str, process: str = "python (pid 7)") -> ForeignChange:
    return ForeignChange(Family.IPV4, frozenset(chains), process=process)


OTHER_RULES = _change("services", OWN, OTHER)
"""The older version deletes this version's marker chain, and adds its own."""


class Beside:
    """This process's view of other processes; ``now`` is the time in seconds."""

    def __init__(self, *listeners: int) -> None:
        self.listeners = frozenset(listeners)
        self.older = OlderVersion(OWN, lambda: self.listeners)
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
        self.older.take_back()
        return self.now - began


def test_table_is_left_until_the_process_ends() -> None:
    beside = Beside(INODE)
    assert not beside.older.has_ended(beside.now)
    assert beside.changes_until_left() == CHANGES_BEFORE_LEAVING
    assert beside.older.has_table()
    assert not beside.is_left_after(OTHER_RULES)
    assert not beside.older.has_ended(beside.now + 1000)
    beside.listeners |= {INODE + 1}
    assert not beside.older.has_ended(beside.now + 1000)
    beside.listeners = frozenset()
    assert beside.older.has_table()
    beside.take_back()
    assert not beside.older.has_table()


@pytest.mark.parametrize("chains", [(), ("services",), ("services", OWN), ("layout-00000002",)])
def test_table_is_not_left_to_other_programs(chains: tuple[str, ...]) -> None:
    assert Beside(INODE).changes_until_left(_change(*chains, process="knft-helper (pid 7)")) == 0


def test_process_named_knft_may_have_equal_rules() -> None:
    """It may have other objects."""
    change = _change("services", process="knft (pid 7)")
    assert Beside(INODE).changes_until_left(change) == CHANGES_BEFORE_LEAVING


def test_table_is_not_left_if_no_process_listens() -> None:
    """Such as to a loop of ``nft -f`` with a copy of an older table: without notifications, nobody would repair it."""
    assert Beside().changes_until_left() == 0


def test_only_the_first_change_after_a_sync_counts() -> None:
    beside = Beside(INODE)
    assert not beside.older.record(OTHER_RULES, beside.now)
    for number in range(1, CHANGES_BEFORE_LEAVING):
        assert not beside.is_left_after(OTHER_RULES), number
        assert not any(beside.older.record(OTHER_RULES, beside.now) for _ in range(10))
    assert beside.is_left_after(OTHER_RULES)


def test_changes_that_are_long_ago_do_not_count() -> None:
    """Such as several upgrades of the cluster, in which two versions run for a short time."""
    beside = Beside(INODE)
    for _ in range(3 * CHANGES_BEFORE_LEAVING):
        assert not beside.is_left_after(OTHER_RULES)
        beside.now += MEMORY_SECONDS / (CHANGES_BEFORE_LEAVING - 1)


def test_slow_process_is_recognized() -> None:
    """It may have a minimum sync interval of a minute."""
    beside = Beside(INODE)
    for _ in range(CHANGES_BEFORE_LEAVING - 1):
        assert not beside.is_left_after(OTHER_RULES)
        beside.now += 60
    assert beside.is_left_after(OTHER_RULES)


def test_end_of_another_listener_costs_less_each_time() -> None:
    """``nft monitor`` ended, and the older version still runs: its next change is enough, and this process waits."""
    beside = Beside(INODE, 1)
    assert beside.changes_until_left() == CHANGES_BEFORE_LEAVING
    seconds = []
    for listener in range(2, 12):
        beside.listeners = frozenset({INODE, listener})
        seconds.append(beside.take_back())
        assert beside.changes_until_left() == 1
    assert seconds == [1, 2, 4, 8, 16, 32, *[MAX_LEFT_SECONDS] * 4]
    beside.listeners = frozenset()
    assert beside.take_back() == MAX_LEFT_SECONDS
    beside.now += MEMORY_SECONDS
    beside.listeners = frozenset({INODE})
    assert beside.changes_until_left() == CHANGES_BEFORE_LEAVING
    beside.listeners = frozenset()
    assert beside.take_back() == 1


def test_unreadable_listeners_are_an_error_and_change_nothing() -> None:
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
