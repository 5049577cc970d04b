"""Each form of rule, loaded by nft into a real kernel, listed, and read: the steps are those that the form means."""

from collections.abc import Iterator

import pytest

from knft.interpret.nftables import read
from knft.interpret.rules import DnatMapLookup, InSet, RuleSet, Step, Unknown, VmapLookup
from tests.interpret.nftables.listings import fresh_namespace, listed
from tests.interpret.nftables.rule_forms import CONTAINERS, PLACED, chain

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def rules() -> Iterator[RuleSet]:
    """Every form in a chain of its own, read back in IPv4."""
    with fresh_namespace() as namespace:
        yield read(listed(namespace, "\n".join((CONTAINERS, *map(chain, range(len(PLACED))), "}"))), 4)


def _as_expected(step: Step, expected: Step, here: str) -> bool:
    match step, expected:
        case Unknown(), Unknown(text=text) if text.startswith("{"):
            # What is printed differs between versions of nft.
            return True
        case InSet() | VmapLookup() | DnatMapLookup(), InSet() | VmapLookup() | DnatMapLookup():
            return str(step) == str(expected).replace("{here}", here)
    return step == expected


@pytest.mark.parametrize("at", range(len(PLACED)), ids=[form.text for _, form in PLACED])
def test_a_form_becomes_the_steps_that_it_means(rules: RuleSet, at: int) -> None:
    """Rules that it becomes are in the order of the listing, which is nft's."""
    found, expected = rules.chains[f"inet t c{at}"].rules, PLACED[at][1].rules
    handle = found[0].text.rpartition(" ")[2]
    assert len(found) == len(expected), found
    for rule, steps in zip(sorted(found, key=str), sorted(expected, key=str), strict=True):
        assert len(rule.steps) == len(steps), (rule.steps, steps)
        for step, meant in zip(rule.steps, steps, strict=True):
            assert _as_expected(step, meant, f"c{at} handle {handle}"), (step, meant)
