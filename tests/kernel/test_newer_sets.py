"""Sets made by a newer nft, which crash an older libnftables, in any table.

``make test`` runs with Debian 12's 1.0.6, which crashes; ``make test-trixie`` with 1.1.3, which does not.
"""

import itertools
from pathlib import Path

import pytest

from knft.errors import LibraryDiedError
from knft.families import Family
from knft.kernel.newer_sets import delete_newer_sets, named_sets
from knft.kernel.process import WorkerProcess
from knft.model.objects import ObjectChange
from knft.sync.assemble import live_daemon
from knft.sync.daemon import Daemon
from knft.sync.invalidation import Invalidation
from knft.sync.quarantine import MAX_LIBRARY_DEATHS, bisect
from tests.support.kernel_harness import CONFIG, decode_manifest, service, slices
from tests.support.knft_command import knft
from tests.support.kube_objects import port_name
from tests.support.lab.namespace import Namespace
from tests.support.newer_sets import add_newer_set, delete_table
from tests.support.nft_library_version import CAN_READ_NEWER_SETS

pytestmark = pytest.mark.kernel

MESSAGE = (
    "it cannot read sets made by a newer libnftables, in inet other (mine); give knft "
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


def test_sets_of_newer_library_are_identified(namespace: Namespace) -> None:
    namespace.run(["nft", "-f", "-"], stdin=OWN)
    add_newer_set("inet", "other", "mine")
    newer = {(each.family, each.table, each.name) for each in named_sets() if each.is_newer}
    if CAN_READ_NEWER_SETS:
        assert ("ip", "own", "plain") in newer
        newer = {place for place in newer if place[1] != "own"}
    assert newer == {("inet", "other", "mine")}


def test_start_names_sets_and_remedy(namespace: Namespace, tmp_path: Path) -> None:
    """The message names the sets instead of an unsupported kernel."""
    add_newer_set("inet", "other", "mine")
    started = knft(namespace, "run", "--once", "--manifests", str(tmp_path), "--node", "node-1", check=False)
    if CAN_READ_NEWER_SETS:
        assert started.returncode == 0
    else:
        assert started.returncode == 2
        assert MESSAGE in started.stderr
        assert "does not support" not in started.stderr


def test_start_deletes_newer_set_from_own_table(namespace: Namespace, tmp_path: Path) -> None:
    """A library that cannot read the set leaves only netlink."""
    add_newer_set("ip", "knft", "mine")
    (tmp_path / "all.yaml").write_text("{apiVersion: v1, kind: List, items: []}")
    started = knft(namespace, "run", "--once", "--manifests", str(tmp_path), "--node", "node-1")
    assert "set mine" in started.stderr
    through_netlink = "IPv4: knft deleted foreign sets of a newer libnftables from its table: set mine"
    assert CAN_READ_NEWER_SETS or through_netlink in started.stderr
    assert "mine" not in namespace.run(["nft", "list", "table", "ip", "knft"]).stdout


def test_newer_set_with_a_name_of_knft_is_kept(namespace: Namespace) -> None:
    """A newer knft may have made it, and rules may refer to it."""
    del namespace
    add_newer_set("ip", "knft", "mine")
    assert delete_newer_sets(Family.IPV4, "knft", ["mine"]) == ()
    assert delete_newer_sets(Family.IPV6, "knft", []) == ()
    assert delete_newer_sets(Family.IPV4, "knft", []) == ("mine",)


def test_newer_set_created_after_the_start_quarantines_no_service_port(
    namespace: Namespace, library: WorkerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """knft does not bisect, and recovers once the set is gone. Until then, an endpoint can be replaced."""
    del namespace
    daemon = live_daemon(CONFIG, library)
    end = [slices(f"web-{number}", [number]) for number in range(1, 33)]
    services = [service(f"web-{number}", number) for number in range(1, 33)]
    daemon.handle(ObjectChange(None, decode_manifest(item)) for item in (*services, *itertools.chain(*end)))
    assert daemon.sync()
    add_newer_set("inet", "other", "mine")
    started = library.start_count
    daemon.handle(
        ObjectChange(decode_manifest(item), decode_manifest(new))
        for item, new in zip(end[6], slices("web-7", [77]), strict=True)
    )
    assert daemon.sync()
    assert library.start_count == started
    sticky = service("web-8", 8, sessionAffinity="ClientIP")
    daemon.handle([ObjectChange(decode_manifest(services[7]), decode_manifest(sticky))])
    assert daemon.sync() is CAN_READ_NEWER_SETS
    if not CAN_READ_NEWER_SETS:
        assert library.start_count - started <= 2 * 5  # A change, two full syncs, and a harmless command.
        assert [MESSAGE in line for line in caplog.messages if "sync failed" in line] == [True, True]
    assert "quarantined" not in caplog.text
    delete_table("inet", "other")
    assert daemon.sync()
    assert "10.244.2.77" in library.run("list map ip knft endpoints-tcp")
    assert "10.96.0.8" in library.run("list map ip knft endpoint-ids-tcp")


def test_newer_set_in_own_table_is_deleted(namespace: Namespace, library: WorkerProcess) -> None:
    """libnftables crashes meanwhile, so it is deleted through netlink."""
    del namespace
    daemon = live_daemon(CONFIG, library)
    assert daemon.sync()
    if CAN_READ_NEWER_SETS:
        return  # No other process can change the table.
    add_newer_set("ip", "knft", "mine")
    _sync_in_full(daemon)
    assert not any(each.is_newer for each in named_sets())


def _sync_in_full(daemon: Daemon) -> None:
    for proxier in daemon._proxiers:
        proxier.invalidate(Invalidation(declarations=True))
    assert daemon.sync()


def test_bisecting_stops_after_too_many_crashes() -> None:
    """The remaining Service ports are quarantined together and retried like others."""
    names = [port_name(service=f"web-{number}") for number in range(30_000)]
    deaths = 0

    def die(_: object) -> None:
        nonlocal deaths
        deaths += 1
        msg = "died"
        raise LibraryDiedError(msg)

    assert bisect(names, die).keys() == set(names)
    assert deaths <= MAX_LIBRARY_DEATHS + 16
