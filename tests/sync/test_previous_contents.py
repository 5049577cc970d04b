"""The contents that a Service port had before a sync; they stay if the kernel refuses new ones."""

from collections.abc import Iterable
from typing import Any

import pytest

from knft.delta.programmed import ProgrammedContents
from knft.model.names import NamespacedName
from knft.nft.expressions import Drop, Goto, Verdict
from knft.nft.objects import COMMENT_BYTES, ArrayName, Chain, Contents, Entry, Key
from knft.sync.previous_contents import PreviousContents, find_services
from knft.sync.table_snapshot import Owner
from tests.support.kernel_harness import service, slices
from tests.support.kube_objects import port_name
from tests.support.memory_harness import MemoryHarness

WEB, STICKY, WIDE, BALANCED, UDP, HASHED = (
    port_name(service=name, protocol="UDP" if name == "udp" else "TCP")
    for name in ("web", "sticky", "wide", "balanced", "udp", "hashed")
)
NAMES = (WEB, STICKY, WIDE, BALANCED, UDP, HASHED)
BALANCER: dict[str, Any] = {"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.0/24"]}
INGRESS = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}}
UDP_PORT = {"name": "http", "port": 80, "protocol": "UDP"}


@pytest.fixture
def harness() -> MemoryHarness:
    """Return a synced harness with a Service of each layout; each has endpoints on this node."""
    harness = MemoryHarness()
    udp_slices = slices("udp", [52, 53], local=[52])
    hashed = service("hashed", 5, node_port=30082, externalTrafficPolicy="Local")
    hashed["metadata"]["annotations"] = {"knft.dev/load-balancing": "maglev"}
    harness.apply(
        *(service("web", 1, node_port=30080), *slices("web", [11, 12], local=[12])),
        *(service("sticky", 2, sessionAffinity="ClientIP"), *slices("sticky", [21, 22], local=[22])),
        service("wide", 3, sessionAffinity="ClientIP", externalIPs=[f"198.51.100.{last}" for last in range(1, 40)]),
        *slices("wide", range(101, 131), local=[107]),
        *(service("balanced", 4, **BALANCER) | INGRESS, *slices("balanced", [41, 42], local=[42])),
        service("udp", 1) | {"spec": service("udp", 1)["spec"] | {"ports": [UDP_PORT], "clusterIPs": ["10.96.0.1"]}},
        *(each | {"ports": [UDP_PORT | {"port": 8080}]} for each in udp_slices),
        *(hashed, *slices("hashed", [61, 62], local=[62])),
    )
    harness.sync()
    return harness


def _found(harness: MemoryHarness) -> Contents:
    """Return the elements in the table, as a restarted process finds them."""
    listing = harness.restarted().table.listing()
    contents = listing.contents
    contents.chains.update((name, chain) for name, chain in harness.table.chains.items() if "-" in name and chain.rules)
    return contents


def _names(contents: Contents) -> set[object]:
    return {*contents.entries, *contents.arrays, *contents.members, *contents.chains}


def _programmed(harness: MemoryHarness) -> ProgrammedContents[Owner]:
    programmed = harness.proxier._writer.programmed
    assert programmed is not None
    return programmed


def test_known_contents_are_the_programmed_ones(harness: MemoryHarness) -> None:
    """Also if more was found: a foreign program may have added it."""
    previous = PreviousContents(_programmed(harness), _found(harness))
    web, sticky = previous.last_known(WEB), previous.last_known(STICKY)
    assert web == _programmed(harness).get(WEB)
    assert {name.container for name in sticky.arrays} == {"endpoints-tcp", "endpoint-ids-tcp"}


@pytest.mark.parametrize("name", NAMES, ids=str)
def test_found_contents_are_those_with_the_name_in_comments(harness: MemoryHarness, name: object) -> None:
    """A restarted process finds for each Service port what the first one has programmed, and nothing of another."""
    programmed = PreviousContents(_programmed(harness))
    found = PreviousContents(ProgrammedContents(), _found(harness))
    (owner,) = [each for each in NAMES if each == name]
    known, by_comment = programmed.last_known(owner), found.last_known(owner)
    assert known.entries
    assert _names(by_comment) == _names(known)
    assert by_comment.arrays == known.arrays


def test_unknown_service_port_has_nothing(harness: MemoryHarness) -> None:
    nobody = port_name(service="nobody")
    assert PreviousContents(_programmed(harness), _found(harness)).last_known(nobody) == Contents.empty()


def test_every_member_has_a_service_port(harness: MemoryHarness) -> None:
    """The members of all Service ports are those of the sets, without the node's."""
    previous = PreviousContents(ProgrammedContents(), _found(harness))
    members = set[object]().union(*(previous.last_known(name).members for name in NAMES))
    containers = {"cluster-ips", "hairpin-connections", "guarded-frontends", "source-ranges"}
    assert members == set(_of(containers, _found(harness)))


@pytest.mark.parametrize(("chain", "is_wide"), [("wide-7-cluster", True), ("sticky-7-cluster", False)])
def test_arrays_of_a_wide_service_port_are_those_with_its_number(chain: str, *, is_wide: bool) -> None:
    """Earlier versions of knft had chains whose names contain the number of a sticky Service port."""
    own = {ArrayName(name, (7, 0)) for name in ("wide-endpoints-tcp-7", "wide-endpoint-ids")}
    other = {ArrayName(name.container, (15, 0)) for name in own}
    entry = Entry(Goto(chain), "default/web:http")
    found = Contents({("service-ips", ("10.96.0.1", "tcp", 80)): entry}, dict.fromkeys(own | other, ()), set())
    last_known = PreviousContents(ProgrammedContents(), found).last_known(WEB)
    assert set(last_known.arrays) == (own if is_wide else set())


LONG = "default/" + "x" * (COMMENT_BYTES - len("default/"))
FRONTENDS: dict[str, Verdict] = {
    "default/web:http": Goto("service-tcp-2"),
    "default/web:": Goto("sticky-7-cluster"),
    "default/web:a:b": Goto("sticky-x-cluster"),
    "other/web:http": Goto("sticky-9-local"),
    "default/api:http": Drop(),
    LONG: Goto("sticky-8-cluster"),
    LONG[:-1]: Goto("service-tcp-1"),
    "of another program": Goto("sticky-10-cluster"),
}
"""Comments and verdicts of the frontends 10.96.0.1, 10.96.0.2 and so on, as an earlier version of knft wrote them."""


@pytest.mark.parametrize(
    ("included", "comments", "numbers"),
    [
        ("web", {"default/web:http", "default/web:", "default/web:a:b", LONG}, {7, 8}),
        ("api", {"default/api:http", LONG}, {8}),
        ("", {LONG}, {8}),
    ],
    ids=["several ports", "one port", "none"],
)
def test_frontends_of_services_are_found_by_their_comments(
    included: str, comments: set[str], numbers: set[int]
) -> None:
    """A comment that fills its space may have lost the name of the Service, so it may be of any."""
    entries: dict[tuple[str, Key], Entry] = {
        ("service-ips", (f"10.96.0.{number}", "tcp", 80)): Entry(verdict, comment)
        for number, (comment, verdict) in enumerate(FRONTENDS.items(), 1)
    }
    chains = {name: Chain(name) for name in (f"sticky-{number}-cluster" for number in (1, 7, 8, 9, 10))}
    found = find_services(
        lambda name: name == NamespacedName("default", included), Contents(entries, {}, set(), chains)
    )
    assert {entry.comment for entry in found.entries.values()} == comments
    assert found.chains.keys() == {f"sticky-{number}-cluster" for number in numbers}


def _of(containers: Iterable[str], contents: Contents) -> Iterable[object]:
    return (member for member in contents.members if member[0] in containers)
