"""Which new chains get their rules before the transaction that leads packets to them."""

import pytest

from knft.delta.diff import ContentsDiff
from knft.nft.expressions import Drop, Goto, Jump, Rule, Verdict
from knft.nft.objects import Chain, Entry, Key, Value
from knft.render import names
from knft.sync.prepare import _are_created_early

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
