"""A newer nft beside an older libnftables, which dies of the sets that the other makes, in whatever table.

``make test`` has Debian 12's 1.0.6, which does; ``make test-trixie`` has 1.1.3, for which nothing is wrong.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from knft.errors import LibraryDiedError
from knft.kernel.newer_sets import named_sets
from knft.kernel.process import LibraryProcess
from knft.model.objects import Change
from knft.sync.assemble import live_daemon
from knft.sync.doubts import Doubt
from knft.sync.isolate import MOST_DEATHS, halve
from tests.kernel.harness import CONFIG, convert, service, slices
from tests.kernel.newer import delete_table, make_newer_set
from tests.kernel.owning import READS_NEWER_SETS
from tests.packets.node import knft
from tests.support.lab.namespace import Namespace
from tests.unit.objects import port_name

pytestmark = pytest.mark.kernel

WORDS = (
    "a newer nftables has made sets that this library cannot read, in inet other (mine); give knft "
    "libnftables 1.1 or newer, or delete these sets with the nft that made them"
)
OWN = """
    add table ip own
    add set ip own plain { type ipv4_addr; }
    add map ip own concatenated { type ipv4_addr . inet_service : verdict; }
    add map ip own picks { typeof ip daddr . numgen random mod 65536 : ip daddr . tcp dport; }
    add set ip own ranges { type ipv4_addr; flags interval; }
    add chain ip own c
    add rule ip own c ip daddr { 192.0.2.1, 192.0.2.2 } udp dport { 1, 2 } drop
"""


@pytest.fixture
def library(namespace: Namespace) -> Iterator[LibraryProcess]:
    del namespace  # Its fixture has put this thread into it.
    with LibraryProcess() as started:
        yield started


def test_what_a_newer_library_made_is_told_from_what_this_one_made(namespace: Namespace) -> None:
    namespace.run(["nft", "-f", "-"], stdin=OWN)
    make_newer_set("inet", "other", "mine")
    newer = {(each.family, each.table, each.name) for each in named_sets() if each.newer}
    if READS_NEWER_SETS:
        assert ("ip", "own", "plain") in newer
        newer = {place for place in newer if place[1] != "own"}
    assert newer == {("inet", "other", "mine")}


def test_a_start_says_what_is_wrong_and_what_to_do(namespace: Namespace, tmp_path: Path) -> None:
    """The kernel lacks nothing."""
    make_newer_set("inet", "other", "mine")
    started = knft(namespace, "run", "--once", "--manifests", str(tmp_path), "--node", "node-1", check=False)
    if READS_NEWER_SETS:
        assert started.returncode == 0
    else:
        assert started.returncode == 2
        assert WORDS in started.stderr
        assert "lacks" not in started.stderr


def test_a_set_made_later_is_nobodys_fault(
    namespace: Namespace, library: LibraryProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """No Service is left out, nobody is searched for, and once it is gone all is as it should be."""
    del namespace
    daemon = live_daemon(CONFIG, library)
    end = [slices(f"web-{number}", [number]) for number in range(1, 33)]
    services = [service(f"web-{number}", number) for number in range(1, 33)]
    daemon.handle(Change(None, convert(item)) for item in (*services, *itertools.chain(*end)))
    assert daemon.sync()
    make_newer_set("inet", "other", "mine")
    started = library.started
    daemon.handle(Change(convert(item), convert(new)) for item, new in zip(end[6], slices("web-7", [77]), strict=True))
    assert daemon.sync() is READS_NEWER_SETS
    if not READS_NEWER_SETS:
        assert library.started - started <= 2 * 5  # A change, a comparison, another one, and something harmless.
        assert [WORDS in said for said in caplog.messages if "sync failed" in said] == [True, True]
    assert "left out" not in caplog.text
    delete_table("inet", "other")
    assert daemon.sync()
    assert "10.244.2.77" in library.run("list map ip knft endpoints-tcp")


def test_one_in_knfts_own_table_is_named_too(
    namespace: Namespace, library: LibraryProcess, caplog: pytest.LogCaptureFixture
) -> None:
    del namespace
    daemon = live_daemon(CONFIG, library)
    assert daemon.sync()
    if READS_NEWER_SETS:
        return  # Nobody else can change the table.
    make_newer_set("ip", "knft", "mine")
    for proxier in daemon._proxiers:
        proxier.doubt(Doubt())
    assert not daemon.sync()
    assert "in ip knft (mine); give knft libnftables 1.1 or newer" in caplog.text


def test_a_search_ends_where_the_library_dies_too_often() -> None:
    """Those of whom it died last are left out together, and tried again like others."""
    names = [port_name(service=f"web-{number}") for number in range(30_000)]
    deaths = 0

    def die(_: object) -> None:
        nonlocal deaths
        deaths += 1
        msg = "died"
        raise LibraryDiedError(msg)

    assert halve(names, die).keys() == set(names)
    assert deaths <= MOST_DEATHS + 16
