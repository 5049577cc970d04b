"""Each form of rule is loaded into a kernel, listed by nft, and parsed into the expected steps."""

from collections.abc import Iterator

import pytest

from knft.interpret.nftables import read
from knft.interpret.rules import DnatMapLookup, InSet, LookUpPriority, RuleSet, Step, Unknown, VmapLookup
from tests.interpret.nftables.listings import fresh_namespace, listed
from tests.interpret.nftables.rule_forms import CONTAINERS, PLACED, chain

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def rules() -> Iterator[RuleSet]:
    """The rules parsed from a listing that has every form in a chain of its own."""
    with fresh_namespace() as namespace:
        yield read(listed(namespace, "\n".join((CONTAINERS, *map(chain, range(len(PLACED))), "}"))), 4)


def _as_expected(step: Step, expected: Step, here: str) -> bool:
    match step, expected:
        case Unknown(), Unknown(text=text) if text.startswith("{"):
            # What is printed differs between versions of nft.
            return True
        case (
            InSet() | VmapLookup() | DnatMapLookup() | LookUpPriority(),
            InSet() | VmapLookup() | DnatMapLookup() | LookUpPriority(),
        ):
            return str(step) == str(expected).replace("{here}", here)
    return step == expected


@pytest.mark.parametrize("at", range(len(PLACED)), ids=[form.text for _, form in PLACED])
def test_form_is_parsed_into_the_expected_steps(rules: RuleSet, at: int) -> None:
    """A form that nft splits into several rules has them in the order of the listing."""
    found, expected = rules.chains[f"inet t c{at}"].rules, PLACED[at][1].rules
    handle = found[0].text.rpartition(" ")[2]
    assert len(found) == len(expected), found
    for rule, steps in zip(sorted(found, key=str), sorted(expected, key=str), strict=True):
        assert len(rule.steps) == len(steps), (rule.steps, steps)
        for step, meant in zip(rule.steps, steps, strict=True):
            assert _as_expected(step, meant, f"c{at} handle {handle}"), (step, meant)
