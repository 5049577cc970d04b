"""Which new chains get their rules before the transaction that leads packets to them, and which ranges it removes."""

import pytest

from knft.delta.diff import ContentsDiff
from knft.delta.programmed import ProgrammedContents
from knft.nft.expressions import Drop, Goto, Jump, Rule, Verdict
from knft.nft.objects import Chain, Contents, Entry, Key, Value
from knft.render import names
from knft.sync.prepare import MAX_ELEMENTS, MAX_RULES, _are_created_early, _Claims, _superseded_ranges
from knft.sync.table_snapshot import Owner, TableSnapshot, TableState
from tests.support.kube_objects import port_name

NEW = (Chain("new", (Rule((Drop(),)),)),)
FRONTEND: Key = ("203.0.113.1", "tcp", 80)


def _diff(container: str, verdict: Verdict, *, removed: tuple[str, ...] = ()) -> ContentsDiff:
    added: dict[str, dict[Key, Value]] = {container: {FRONTEND: Entry(verdict, "default/web:http")}}
    return ContentsDiff(dict.fromkeys(removed, (FRONTEND,)), added, new_chains=NEW)


@pytest.mark.parametrize(
    ("diff", "early"),
    [
        pytest.param(_diff(names.SERVICE_IPS, Goto("new")), False, id="new frontend"),
        pytest.param(_diff(names.SERVICE_IPS, Goto("new"), removed=(names.SERVICE_IPS,)), True, id="replaced verdict"),
        pytest.param(_diff(names.SERVICE_IPS, Jump("new"), removed=(names.SERVICE_IPS,)), False, id="jump"),
        pytest.param(_diff(names.SERVICE_IPS, Goto("old"), removed=(names.SERVICE_IPS,)), False, id="existing chain"),
        pytest.param(
            _diff(names.SOURCE_RANGE_CHAINS, Goto("new"), removed=(names.SOURCE_RESTRICTED_FRONTENDS,)),
            True,
            id="source ranges of a frontend that was restricted by elements",
        ),
        pytest.param(_diff(names.SOURCE_RANGE_CHAINS, Goto("new")), True, id="source ranges of a new frontend"),
    ],
)
def test_chains_whose_rules_packets_need_are_created_early(diff: ContentsDiff, *, early: bool) -> None:
    assert _are_created_early(NEW, diff) is early


@pytest.mark.parametrize(
    ("rules", "elements", "early"),
    [
        (MAX_RULES, MAX_ELEMENTS, False),
        (MAX_RULES + 1, 0, True),
        (0, MAX_ELEMENTS + 1, True),
    ],
)
def test_chains_of_large_transactions_are_created_early(rules: int, elements: int, *, early: bool) -> None:
    chains = (Chain("new", (Rule((Drop(),)),) * rules),)
    endpoints: dict[Key, Value] = {("10.96.0.1", 80, index): ("10.244.0.1", 8080) for index in range(elements)}
    assert _are_created_early(chains, ContentsDiff({}, {"endpoints-tcp": endpoints}, new_chains=chains)) is early


def test_found_ranges_of_desired_frontends_are_superseded() -> None:
    """Those of a frontend with an entry, of one that is restricted, and of a claimed one; not those of an unknown."""
    served, restricted, claimed, unknown = ((f"203.0.113.{number}", "tcp", 80) for number in range(1, 5))
    found = Contents.empty()
    found.members |= {(names.SOURCE_RANGES, (*key, "192.0.2.0/24")) for key in (served, restricted, claimed, unknown)}
    found.members |= {(names.SOURCE_RESTRICTED_FRONTENDS, served), (names.CLUSTER_IPS, ("10.96.0.1",))}
    desired = Contents(
        {(names.SERVICE_IPS, served): Entry(Goto("pool-tcp-1"))}, {}, {(names.SOURCE_RESTRICTED_FRONTENDS, restricted)}
    )
    programmed: ProgrammedContents[Owner] = ProgrammedContents()
    programmed.apply({port_name(): Contents({(names.SERVICE_IPS, claimed): Entry(Goto("pool-tcp-1"))}, {}, set())})
    claims = _Claims(TableSnapshot(programmed, TableState.READY, frozenset(), {}))
    claims.names += [port_name(), port_name(service="without-contents")]

    superseded = _superseded_ranges(found, desired, claims)

    assert superseded == {(names.SOURCE_RANGES, (*key, "192.0.2.0/24")) for key in (served, restricted, claimed)}
