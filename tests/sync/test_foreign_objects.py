"""Foreign chains, sets, maps and stateful objects in knft's table are removed, and the table is read back."""

import logging
from collections.abc import Callable, Sequence

import pytest
from msgspec import structs

from knft.errors import KernelError
from knft.families import Family
from knft.nft.objects import NamedObject
from knft.render.layout import HASHED_MAPS
from knft.sync.foreign_objects import ForeignObjects
from knft.sync.invalidation import Invalidation
from tests.support.fake_clock import FakeClock
from tests.support.kernel_harness import CONFIG, KernelHarness, harness_with_service, restarted, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
V4 = Family.IPV4
DIFFERS = "table ip knft differs from the expected rules"
FOREIGN_CHANGE = Invalidation(declarations=True)
"""What the notification of a foreign change that created objects leads to."""

NFT_1_0_6 = """
    table ip knft {
        counter hits {
        }
        quota volume {
            over 10 mbytes
        }
        limit rate1 {
            rate 10/second
        }
        ct helper ftp-standard {
            type "ftp" protocol tcp
        }
        ct timeout short {
            protocol tcp; l3proto ip; policy = { established: 132, close: 13 }
        }
        ct expectation expected {
            protocol udp
            dport 9876
            timeout 2m
            size 12
            l3proto ip
        }
        synproxy syn {
            mss 1460
            wscale 7
            timestamp sack-perm
        }
        set seen { type ipv4_addr; flags dynamic,timeout; }
        set ports { type inet_service; elements = { 80, 443 } }
        chain leaf { }
        map verdicts { type ipv4_addr : verdict; elements = { 192.0.2.1 : jump leaf, 192.0.2.2 : drop } }
        map counted { type ipv4_addr : counter; elements = { 192.0.2.1 : "hits" } }
        chain caller {
            jump leaf
            tcp dport @ports return
            ip saddr vmap @verdicts
            jump {
                counter
            }
            tcp dport 80 meter clients { ip saddr limit rate 10/second }
            add @seen { ip saddr }
            ct timeout set "short"
            ct expectation set "expected"
        }
        chain first {
            type filter hook prerouting priority -300; policy drop;
            counter name hits
            quota name volume
            limit name rate1 accept
            counter name ip saddr map @counted
            ct helper set "ftp-standard"
            jump caller
        }
        chain rerouting { type route hook output priority -150; policy accept; }
        chain pool-tcp-900 { type filter hook forward priority 5; policy drop; }
        chain services {
            tcp dport @ports jump caller
            counter name hits
        }
        chain pool-tcp-1 {
            jump caller
        }
    }
"""
"""Every kind of object that libnftables 1.0.6 and this kernel can create without SELinux and flowtables."""


def _nft(namespace: Namespace, commands: str) -> None:
    namespace.run(["nft", "-f", "-"], stdin=commands)


def _table_handle(namespace: Namespace) -> str:
    """Return the first line of the table, with its handle."""
    return namespace.run(["nft", "-a", "list", "table", "ip", "knft"]).stdout.splitlines()[0]


def _listed(namespace: Namespace) -> list[str]:
    """Return the words of the table, sorted, because a repair changes the order of chains and elements."""
    return sorted(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout.replace(",", " ").split())


@pytest.mark.parametrize("after_restart", [True, False], ids=["found at start", "notified"])
def test_foreign_objects_of_every_kind_are_removed(namespace: Namespace, *, after_restart: bool) -> None:
    harness = harness_with_service(namespace)
    before = _listed(namespace)
    _nft(namespace, NFT_1_0_6)
    if after_restart:
        harness = restarted(harness)
    else:
        harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    repair = harness.sync()[V4].repair
    assert (repair.repaired, repair.error) == (True, "")
    # Only nft 1.1 and newer list the set of a meter.
    assert {str(each) for each in repair.removed} - {"set clients"} == {
        *("chain first", "chain rerouting", "chain pool-tcp-900", "chain caller", "chain leaf"),
        *("set seen", "set ports", "map verdicts", "map counted", "counter hits", "quota volume", "limit rate1"),
        *("ct helper ftp-standard", "ct timeout short", "ct expectation expected", "synproxy syn"),
    }
    assert _listed(namespace) == before
    assert harness.sync()[V4].repair.removed == frozenset()


def test_base_chains_are_deleted_before_anything_else_is_sent(namespace: Namespace) -> None:
    """A base chain that drops all traffic must not stay until a large transaction is committed, or if one fails."""
    harness = harness_with_service(namespace)
    _nft(namespace, "table ip knft { chain evil { type filter hook prerouting priority -300; policy drop; }; }")
    harness.apply(service("other", 11), *slices("other", [21]))
    harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    found: list[bool] = []
    harness.checked_tables[V4].on_commit = lambda _: found.append("evil" in harness.listing().rule_counts)
    harness.sync()
    assert found
    assert not any(found)


def test_maps_of_knft_no_longer_lead_to_a_deleted_chain(namespace: Namespace) -> None:
    harness = harness_with_service(namespace)
    before = _listed(namespace)
    _nft(namespace, "add chain ip knft mine\nadd element ip knft service-nodeports { tcp . 99 : goto mine }")
    harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    assert harness.sync()[V4].repair.removed == {NamedObject("chain", "mine")}
    assert _listed(namespace) == before


@pytest.mark.parametrize("chain", ["maglev-tcp-1021", "external-source-hash-udp-1021"])
def test_chain_of_consistent_hashing_in_a_table_without_its_maps(namespace: Namespace, chain: str) -> None:
    """knft writes the rules of the shared chain, and creates the maps to which they refer."""
    harness = harness_with_service(namespace)
    _nft(namespace, f"add chain ip knft {chain}")
    harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    before = _table_handle(namespace)
    harness.sync()
    assert _table_handle(namespace) == before, "the table was replaced"
    assert harness.listing().containers >= HASHED_MAPS
    assert harness.listing().rule_counts[chain.removeprefix("external-")] == 3


def test_refused_deletion_is_reported_and_retried_with_growing_delays(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is called repaired meanwhile, and the other objects are removed."""
    clock = FakeClock()
    harness = KernelHarness(namespace, clock=clock)
    harness.daemon.sync()
    _nft(namespace, "add counter ip knft stays\nadd counter ip knft goes\nadd set ip knft s { type ipv4_addr; }")
    checked = harness.checked_tables[V4]
    checked.on_delete = _refuse("stays")
    harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    for delay in (30.0, 60.0, 120.0):
        assert harness.daemon.sync()
        assert harness.proxiers[V4].sync().next_sync_within == delay
        clock.now += delay
    assert harness.listing().other_objects == {NamedObject("counter", "stays")}
    assert "read it back" not in caplog.text
    problem = f"IPv4: {DIFFERS}: foreign objects remain: counter stays (refused for the test); knft retries the repair"
    assert caplog.messages.count(problem) == 1
    assert caplog.messages.count("IPv4: knft repairs the table; it removed counter goes, set s") == 1
    checked.on_delete = lambda _: None
    assert harness.daemon.sync()
    assert "IPv4: knft repaired the table and read it back; it removed counter stays" in caplog.messages
    assert harness.proxiers[V4].sync().next_sync_within is None


def test_table_is_replaced_if_the_kernel_refuses_to_delete_a_base_chain(namespace: Namespace) -> None:
    harness = harness_with_service(namespace)
    before = _listed(namespace)
    _nft(namespace, "table ip knft { chain evil { type filter hook prerouting priority -300; policy drop; }; }")
    harness.checked_tables[V4].on_delete = _refuse("evil")
    harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    repair = harness.sync()[V4].repair
    assert repair.repaired
    assert repair.removed == {NamedObject("chain", "evil")}
    assert _listed(namespace) == before


def test_change_during_the_repair_is_not_called_repaired(namespace: Namespace) -> None:
    """Another program changes the table after the commit; the read-back finds that, before any notification."""
    harness = harness_with_service(namespace)
    checked = harness.checked_tables[V4]
    _nft(namespace, "add counter ip knft c")
    harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    checked.on_delete = lambda _: _nft(namespace, "flush chain ip knft services")
    repair = harness.sync()[V4].repair
    assert (repair.repaired, repair.error) == (False, f"{DIFFERS}: 1 elements or chains")
    checked.on_delete = lambda _: None
    harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    assert harness.sync()[V4].repair.repaired


def test_table_is_not_read_back_without_a_repair(namespace: Namespace) -> None:
    harness = harness_with_service(namespace)
    checked = harness.checked_tables[V4]
    assert checked.reads == 1
    second = restarted(harness)
    assert not second.sync()[V4].repair.repaired
    assert second.checked_tables[V4].reads == 1


def test_log_line_names_a_few_of_many_objects(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    harness = harness_with_service(namespace)
    _nft(namespace, "\n".join(f"add chain ip knft c{number:03}" for number in range(300)))
    harness.proxiers[V4].invalidate(FOREIGN_CHANGE)
    assert harness.daemon.sync()
    named = ", ".join(f"chain c{number:03}" for number in range(5))
    assert [line for line in caplog.messages if "repaired" in line] == [
        f"IPv4: knft repaired the table and read it back; it removed {named} and 295 more"
    ]


def test_turning_counters_off_is_logged_as_such_and_not_as_a_repair(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    counting = KernelHarness(namespace, structs.replace(CONFIG, service_counters=True))
    counting.apply(service("web"), *slices("web", [11]))
    assert counting.daemon.sync()
    with caplog.at_level(logging.INFO, "knft"):
        assert restarted(counting).daemon.sync()
    named = "chain dropped-nodeports, chain dropped-services, chain rejected-nodeports, chain rejected-services"
    removed = f"removed objects of other options: {named}, set dropped-nodeport-connections"
    lines = {record.message: record.levelname for record in caplog.records}
    assert [lines.get(f"{family.value}: {removed} and 5 more") for family in Family] == ["INFO", "INFO"]
    assert not [line for line in lines if "repair" in line]


def test_chains_that_lead_to_counters_are_removed_with_them(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """They are those of a Service without endpoints that resets connections."""
    counting = KernelHarness(namespace, structs.replace(CONFIG, service_counters=True))
    item = service("web")
    counting.apply(item | {"metadata": item["metadata"] | {"annotations": {"knft.dev/drain": "reset"}}})
    assert counting.daemon.sync()
    assert "chain reset-or-rejected-services" in namespace.run(["nft", "list", "ruleset"]).stdout
    with caplog.at_level(logging.INFO, "knft"):
        assert restarted(counting).daemon.sync()
    listed = namespace.run(["nft", "list", "ruleset"]).stdout
    assert "goto reset-or-reject-chain" in listed
    assert "rejected-services" not in listed
    lines = {record.message: record.levelname for record in caplog.records}
    assert {level for line, level in lines.items() if "removed objects of other options" in line} == {"INFO"}
    assert not [line for line in lines if "repair" in line]


def test_flowtables_are_deleted_after_the_rules_that_refer_to_them(namespace: Namespace) -> None:
    """The kernel of these tests has no flowtables: it must know the command, and not the object."""
    objects = {NamedObject("flowtable", "offload"), NamedObject("chain", "forwarded"), NamedObject("counter", "c")}
    steps = list(ForeignObjects(unhooked_objects=frozenset(objects)).deletion_steps())
    assert [[str(each) for each in deleted] or emptied for deleted, emptied in steps] == [
        ("forwarded",),
        ["flowtable offload"],
        ["chain forwarded"],
        ["counter c"],
    ]
    harness = harness_with_service(namespace)
    with pytest.raises(KernelError, match="No such file or directory"):
        harness.tables[V4].delete([NamedObject("flowtable", "offload")])


def test_object_whose_name_is_not_a_word_of_nft_is_not_deleted_as_text(namespace: Namespace) -> None:
    harness = harness_with_service(namespace)
    with pytest.raises(KernelError, match="no such name"):
        harness.tables[V4].delete([NamedObject("synproxy", "a; flush ruleset")])


def _refuse(name: str) -> Callable[[Sequence[NamedObject]], None]:
    def refuse(objects: Sequence[NamedObject]) -> None:
        if any(each.name == name for each in objects):
            msg = "refused for the test"
            raise KernelError(msg)

    return refuse
