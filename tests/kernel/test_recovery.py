"""What goes wrong stays small: a refused commit, rules that somebody edited, a table that is gone."""

import logging

import pytest

from knft.config import Config
from knft.errors import KernelError
from knft.model.names import Family
from knft.nft.objects import Contents
from tests.kernel.harness import CONFIG, KernelHarness, operations, service, slices
from tests.lab.namespace import Namespace

pytestmark = pytest.mark.kernel


def _restart(harness: KernelHarness, config: Config = CONFIG) -> KernelHarness:
    """Return a new process on the same kernel, that has been told of the same objects, not yet synced."""
    second = KernelHarness(harness.namespace, config)
    second.change((kind, name, item) for (kind, name), item in harness.objects.items())
    return second


def _held_by_fresh_start(harness: KernelHarness) -> Contents:
    namespace = Namespace.create("fresh")
    with namespace.entered():
        fresh = KernelHarness(namespace)
        fresh.change((kind, name, item) for (kind, name), item in harness.objects.items())
        fresh.sync()
        held = fresh.held()
    namespace.close()
    return held.contents


def _filled(namespace: Namespace) -> KernelHarness:
    harness = KernelHarness(namespace)
    harness.apply(service("web", node_port=30080), *slices("web", range(11, 14)))
    harness.sync()
    return harness


def test_after_a_refused_commit_everything_is_compared_and_nothing_is_lost(namespace: Namespace) -> None:
    """The refused change and the next one both arrive, by a delta from what was read back."""
    harness = _filled(namespace)
    port = harness.ports[Family.IPV4]
    port.refuse = 1
    harness.apply(service("late", 20), *slices("late", [15]))
    with pytest.raises(KernelError):
        harness.sync()
    assert port.reads == 1
    harness.apply(*slices("web", range(11, 15)))
    harness.sync()
    assert port.reads == 2
    assert operations(harness.last()) < 12
    assert _held_by_fresh_start(harness) == harness.held().contents


def test_one_familys_failure_does_not_stop_the_other(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    """It is reported, the daemon knows that a retry is due, and the other family is in force."""
    harness = _filled(namespace)
    harness.ports[Family.IPV4].refuse = 1
    harness.apply(service("late", 20), *slices("late", [15]))
    with caplog.at_level(logging.ERROR, "knft"):
        assert not harness.daemon.sync()
    assert [record.message for record in caplog.records] == ["IPv4: sync failed: refused for the test"]
    assert ("cluster-ips", ("fd00:10:96::20",)) in harness.held(Family.IPV6).contents.members
    assert ("cluster-ips", ("10.96.0.20",)) not in harness.held().contents.members
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
    ],
)
def test_a_restart_mends_what_somebody_broke(namespace: Namespace, damage: str) -> None:
    harness = _filled(namespace)
    before, text = harness.held(), namespace.run(["nft", "list", "table", "ip", "knft"]).stdout
    namespace.run(["nft", "-f", "-"], stdin=damage)
    _restart(harness).sync()
    assert (before.chains, before.contents) == (harness.held().chains, harness.held().contents)
    assert sorted(text.split("\n")) == sorted(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout.split("\n"))


def test_everything_is_compared_once_an_hour(namespace: Namespace) -> None:
    """What somebody broke meanwhile is mended then, and nothing is sent where nobody did."""
    now = 0.0
    harness = KernelHarness(namespace, timer=lambda: now)
    harness.apply(service("web"), *slices("web", range(11, 14)))
    harness.sync()
    before = harness.held()
    namespace.run(["nft", "delete", "element", "ip", "knft", "cluster-ips", "{ 10.96.0.10 }"])
    now = 3599.0
    harness.sync()
    assert harness.last().is_empty
    now = 3601.0
    harness.sync()
    assert operations(harness.last()) == 1
    assert before == harness.held()
    now = 7300.0
    harness.sync()
    assert harness.last().is_empty


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
    second = _restart(harness, Config("node-1", masquerade_bit=15))
    second.sync()
    assert _marks(namespace.run(["nft", "list", "table", "ip", "knft"]).stdout) == {"0x00008000"}
    third = _restart(second, Config("node-1", masquerade_bit=15))
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
    second = _restart(harness)
    second.sync()
    for family in Family:
        assert second.last(family).is_empty, second.last(family)
