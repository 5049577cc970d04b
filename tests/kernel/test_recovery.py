"""What goes wrong stays small: a refused commit, rules that somebody edited, a table that is gone."""

import logging
import re
from typing import Any

import pytest

from knft.config import Config
from knft.decide.frontends import FrontendLedger
from knft.errors import KernelError
from knft.model.names import Family
from knft.nft.objects import Memory
from knft.render.names import AFFINITY, STICKY_PORTS
from knft.sync.doubts import Doubt
from tests.kernel.harness import (
    ALIEN,
    KernelHarness,
    filled,
    held_by_fresh_start,
    operations,
    restarted,
    service,
    slices,
    words,
)
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
EVERY = 1000


def test_a_change_that_is_refused_is_made_by_comparing_at_once(namespace: Namespace) -> None:
    """By a delta from what was read back, in the same sync."""
    harness = filled(namespace)
    port = harness.ports[Family.IPV4]
    port.refuse = 1
    harness.apply(service("late", 20), *slices("late", [15]))
    assert harness.sync()[Family.IPV4].full
    assert port.reads == 2
    assert operations(harness.last()) < 8
    assert held_by_fresh_start(harness) == harness.held().contents


def test_where_everything_is_refused_nothing_is_lost(namespace: Namespace) -> None:
    """The refused change and the next one both arrive, and what is to be done besides is not forgotten."""
    harness = filled(namespace)
    port = harness.ports[Family.IPV4]
    port.refuse = EVERY
    udp = [item | {"ports": [{"name": "http", "port": 53, "protocol": "UDP"}]} for item in slices("late", [15])]
    harness.apply(service("late", 20), *udp)
    with pytest.raises(KernelError, match="refused for the test"):
        harness.sync()
    port.refuse = 0
    harness.apply(*slices("web", range(11, 15)))
    report = harness.sync()[Family.IPV4]
    assert report.conntrack_cleanup_required
    assert report.left_out == {}
    assert held_by_fresh_start(harness) == harness.held().contents


def test_a_mistake_in_one_sync_ends_neither_the_daemon_nor_the_other_family(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    harness = filled(namespace)
    port = harness.ports[Family.IPV4]
    harness.apply(service("late", 20), *slices("late", [15]))
    commit, port.commit = port.commit, None  # type: ignore[assignment,method-assign]
    with caplog.at_level(logging.ERROR, "knft"):
        assert not harness.daemon.sync()
    assert [record.message for record in caplog.records] == ["IPv4: sync failed unexpectedly; please report this"]
    port.commit = commit  # type: ignore[method-assign]
    assert harness.daemon.sync()
    assert ("cluster-ips", ("10.96.0.20",)) in harness.held().contents.members


def test_a_mistake_before_a_sync_has_begun_loses_no_change(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was taken from the trackers is synced by the next one."""
    harness = filled(namespace)
    harness.apply(service("late", 20), *slices("late", [15]))

    def failing(*_: object) -> None:
        monkeypatch.undo()
        msg = "a mistake"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(FrontendLedger, "claim", failing)
    assert not harness.daemon.sync()
    assert "please report this" in caplog.text
    assert harness.daemon.sync()
    assert held_by_fresh_start(harness) == harness.held().contents


def test_one_familys_failure_does_not_stop_the_other(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    """It is reported, with its time, the daemon knows that a retry is due, and the other family is in force."""
    harness = filled(namespace)
    harness.ports[Family.IPV4].refuse = EVERY
    harness.apply(service("late", 20), *slices("late", [15]))
    with caplog.at_level(logging.DEBUG, "knft"):
        assert not harness.daemon.sync()
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == ["IPv4: sync failed: refused for the test"]
    assert re.search(r"^IPv4: the sync that failed took \d+\.\d ms$", "\n".join(caplog.messages), re.MULTILINE)
    assert re.search(r"^IPv6: sync of 1 Service ports in \d+\.\d ms", "\n".join(caplog.messages), re.MULTILINE)
    assert ("cluster-ips", ("fd00:10:96::20",)) in harness.held(Family.IPV6).contents.members
    assert ("cluster-ips", ("10.96.0.20",)) not in harness.held().contents.members
    harness.ports[Family.IPV4].refuse = 0
    assert harness.daemon.sync()
    assert ("cluster-ips", ("10.96.0.20",)) in harness.held().contents.members


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("flush chain ip knft services", id="a chain of the skeleton is flushed"),
        pytest.param("flush chain ip knft pool-tcp-3", id="a pool in use is flushed"),
        pytest.param("flush chain ip knft pool-tcp-9", id="a pool that nobody uses is flushed"),
        pytest.param("delete table ip knft", id="the table is deleted"),
        pytest.param("flush set ip knft cluster-ips", id="a set is flushed"),
        pytest.param("add chain ip knft filter-input { policy drop; }", id="a policy is changed"),
        pytest.param("add element ip knft service-cidrs { 10.97.0.1-10.97.0.9 }", id="a range is added to a set"),
        pytest.param(
            "flush chain ip knft services\ndelete map ip knft service-nodeports", id="a map and its rule are missing"
        ),
    ],
)
def test_a_restart_mends_what_somebody_broke(namespace: Namespace, damage: str) -> None:
    harness = filled(namespace)
    before, text = harness.held(), namespace.run(["nft", "list", "table", "ip", "knft"]).stdout
    namespace.run(["nft", "-f", "-"], stdin=damage)
    restarted(harness).sync()
    assert (before.chains, before.contents) == (harness.held().chains, harness.held().contents)
    assert words(text) == words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)


def test_what_is_not_knfts_is_left_alone_in_its_table_too(namespace: Namespace) -> None:
    harness = filled(namespace)
    namespace.run(["nft", "-f", "-"], stdin=ALIEN)
    text = namespace.run(["nft", "list", "table", "ip", "knft"]).stdout
    second = restarted(harness)
    second.sync()
    assert second.last().is_empty
    assert namespace.run(["nft", "list", "table", "ip", "knft"]).stdout == text


REMEMBERED = {
    "": "add element {protocol} knft affinity {{ {client} . {number} . 2 timeout 3h expires 2h }}",
    "a set for each index, as in layouts before": """
        add set {protocol} knft affinity-2 {{
            typeof {protocol} saddr . numgen random mod 65536; size 1048576; flags dynamic,timeout;
        }}
        add element {protocol} knft affinity-2 {{ {client} . {number} timeout 3h expires 2h }}
    """,
}


@pytest.mark.parametrize("remembered", REMEMBERED.values(), ids=REMEMBERED.keys())
@pytest.mark.parametrize("family", list(Family))
def test_a_table_of_another_layout_is_replaced_and_its_clients_stay(
    namespace: Namespace, family: Family, remembered: str
) -> None:
    """The layout's marker is taken away, as if another knft had made the table; its clients are known by hand."""
    harness = KernelHarness(namespace)
    harness.apply(service("web", sessionAffinity="ClientIP"), *slices("web", [11, 12, 13]))
    harness.sync()
    harness.apply(*slices("web", [11, 13]))
    harness.sync()
    before = harness.held(family)
    (number,) = {key[0] for container, key in before.contents.entries if container == STICKY_PORTS}
    client, protocol = ("10.250.0.1", "ip") if family is Family.IPV4 else ("fd00:10:250::1", "ip6")
    marker = next(name for name in before.chains if name.startswith("layout-"))
    edit = remembered.format(protocol=protocol, client=client, number=number)
    namespace.run(["nft", "-f", "-"], stdin=f"delete chain {protocol} knft {marker}\n{edit}")

    restarted(harness).sync()

    after = harness.held(family)
    assert (before.chains, before.contents) == (after.chains, after.contents)
    ((key, memory),) = after.memories()[AFFINITY].items()
    assert key == (client, number, 2)
    assert isinstance(memory, Memory)
    assert memory.timeout == 3 * 3600
    assert 2 * 3600 - 60 < memory.expires <= 2 * 3600


@pytest.mark.parametrize(
    "damage",
    ["delete element ip knft sticky-ports {{ {number} }}", "flush map ip knft sticky-ports",
     "flush map ip knft sticky-endpoints"],
)  # fmt: skip
def test_clients_keep_their_endpoints_when_somebody_deletes_the_notes(namespace: Namespace, damage: str) -> None:
    """The process remembers who has which index; the kernel, under the index, who is stuck to it."""
    harness = KernelHarness(namespace)
    for numbers in ([12, 13], [11, 12, 13]):
        harness.apply(service("web", sessionAffinity="ClientIP"), *slices("web", numbers))
        harness.sync()
    before = harness.held()
    (number,) = {key[0] for container, key in before.contents.entries if container == STICKY_PORTS}
    namespace.run(["nft", "-f", "-"], stdin=damage.format(number=number))
    harness.proxiers[Family.IPV4].doubt(Doubt(declarations=True))
    harness.sync()
    assert (before.chains, before.contents) == (harness.held().chains, harness.held().contents)


@pytest.mark.parametrize("name", ["sticky-ports", "sticky-endpoints", "service-nodeports"])
def test_a_map_of_another_kind_is_replaced_with_the_table(namespace: Namespace, name: str) -> None:
    harness = KernelHarness(namespace)
    harness.apply(service("web", sessionAffinity="ClientIP"), *slices("web", [12, 13]))
    harness.sync()
    before = words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)
    edit = f"flush chain ip knft services\ndelete map ip knft {name}\nadd map ip knft {name} {{ type mark : verdict; }}"
    namespace.run(["nft", "-f", "-"], stdin=edit)
    harness.proxiers[Family.IPV4].doubt(Doubt(declarations=True))
    assert harness.sync()[Family.IPV4].left_out == {}
    assert before == words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)


def test_after_an_overrun_every_rule_is_doubted(namespace: Namespace) -> None:
    harness = filled(namespace)
    before = words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)
    chains = ("reject-chain", "pool-tcp-1", "external-nodeport-pool-tcp-3")
    edits = [f"flush chain ip knft {chain}\nadd rule ip knft {chain} accept" for chain in chains]
    namespace.run(["nft", "-f", "-"], stdin="\n".join(edits))
    harness.proxiers[Family.IPV4].doubt(Doubt(every_chain=True))
    harness.sync()
    assert before == words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)


def test_clients_stay_also_when_the_replacement_is_refused_at_first(namespace: Namespace) -> None:
    """It is made without Service ports then, which follow one after the other."""
    harness = KernelHarness(namespace)
    harness.apply(service("web", sessionAffinity="ClientIP"), *slices("web", [11, 12, 13]))
    harness.sync()
    before = harness.held()
    (number,) = {key[0] for container, key in before.contents.entries if container == STICKY_PORTS}
    marker = next(name for name in before.chains if name.startswith("layout-"))
    client = f"affinity {{ 10.250.0.1 . {number} . 2 timeout 3h expires 2h }}"
    edit = f"delete chain ip knft {marker}\nadd element ip knft {client}"
    namespace.run(["nft", "-f", "-"], stdin=edit)
    second = restarted(harness)
    second.ports[Family.IPV4].refuse = 2
    assert second.sync()[Family.IPV4].left_out == {}
    after = second.held()
    assert (before.chains, before.contents) == (after.chains, after.contents)
    assert list(after.memories()[AFFINITY]) == [("10.250.0.1", number, 2)]


def test_a_restart_sends_nothing_and_what_was_emptied_before_is_deleted_a_while_after(namespace: Namespace) -> None:
    """The process before may have emptied it just now, and kernels before 6.2 would refuse to delete it at once."""
    now = 100.0
    harness = KernelHarness(namespace, timer=lambda: now)
    for node_port in (30080, 0):
        harness.apply(service("web", sessionAffinity="ClientIP", node_port=node_port), *slices("web", [11, 12]))
        report = harness.sync()[Family.IPV4]
    assert report.again_within is not None
    second = KernelHarness(namespace, timer=lambda: now)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    again_within = second.sync()[Family.IPV4].again_within
    assert second.last().is_empty
    assert again_within is not None
    now += again_within
    assert second.sync()[Family.IPV4].again_within is None
    (dropped,) = second.last().dropped
    assert dropped.endswith("-external")


def test_no_verdict_leads_to_a_chain_that_is_made_with_it(namespace: Namespace) -> None:
    """A packet on its way during the commit would find the chain without rules; so chains are sent before."""
    harness = KernelHarness(namespace)
    harness.sync()
    port = harness.ports[Family.IPV4]
    local: dict[str, Any] = {"externalTrafficPolicy": "Local"}
    for step, numbers in enumerate(([11, 12], range(11, 90), range(11, 30))):
        port.sent.clear()
        here = [11, 12, 13][: step + 1]
        harness.apply(service("web", node_port=30080, **local), *slices("web", numbers, local=here))
        harness.apply(service("sticky", 20, sessionAffinity="ClientIP"), *slices("sticky", numbers))
        harness.sync()
        assert any(sent.made for sent in port.sent)
        for sent in port.sent:
            assert not (sent.made and (sent.added or sent.chains))


def test_a_doubt_outlives_a_sync_that_fails(namespace: Namespace) -> None:
    """Rules that somebody replaced by as many are written anew by the next sync that succeeds."""
    harness = filled(namespace)
    before = words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)
    edit = "flush chain ip knft reject-chain\nadd rule ip knft reject-chain drop"
    namespace.run(["nft", "-f", "-"], stdin=edit)
    harness.proxiers[Family.IPV4].doubt(Doubt(frozenset({"reject-chain"}), declarations=True))
    port = harness.ports[Family.IPV4]
    port.refuse_reads = 1000
    with pytest.raises(KernelError):
        harness.sync()
    port.refuse_reads = 0
    harness.sync()
    assert before == words(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout)


def _marks(listing: str) -> set[str]:
    return {word for word in listing.split() if word.startswith("0x") and int(word, 16)}


def test_no_chain_keeps_the_rules_of_an_earlier_configuration(namespace: Namespace) -> None:
    """Not even one that nobody needs at the time: it may be needed later."""
    harness = KernelHarness(namespace, Config("node-1", masquerade_bit=14))
    harness.apply(service("web", node_port=30080, externalTrafficPolicy="Local"), *slices("web", [11, 12], local=[11]))
    harness.apply(service("two", 20, node_port=30081), *slices("two", [13, 14, 15]))
    harness.sync()
    harness.delete("Service", "web")
    harness.delete("Service", "two")
    second = restarted(harness, Config("node-1", masquerade_bit=15))
    second.sync()
    assert _marks(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout) == {"0x00008000"}
    third = restarted(second, Config("node-1", masquerade_bit=15))
    third.apply(service("two", 20, node_port=30081), *slices("two", [13, 14, 15]))
    third.sync()
    assert _marks(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout) == {"0x00008000"}


@pytest.mark.parametrize("port", ["p", "p" * 15], ids=["one byte too long", "as long as can be"])
def test_a_restart_sends_nothing_for_the_longest_names(namespace: Namespace, port: str) -> None:
    """Their comments are cut, by knft as by the kernel: namespace, name and port have 129 bytes, or 143."""
    long = service("a" * 63, sessionAffinity="ClientIP", externalIPs=["203.0.113.1"])
    long["metadata"]["namespace"] = "n" * 63
    long["spec"]["ports"][0]["name"] = port
    end = slices("a" * 63, [11, 12])
    for item in end:
        item["metadata"]["namespace"] = "n" * 63
        item["ports"][0]["name"] = port
    harness = KernelHarness(namespace)
    harness.apply(long, *end)
    harness.sync()
    assert {len(entry.comment) for entry in harness.held().contents.entries.values()} == {128}
    second = restarted(harness)
    second.sync()
    for family in Family:
        assert second.last(family).is_empty, second.last(family)
