"""The rules for the objects of kube-proxy's unit tests have the outcomes of the nftables rules of those tests.

These are knft's rules, and kube-proxy's as ``knft diff --against nftables`` renders them.
"""

from collections.abc import Iterator

import pytest
from msgspec import structs

from knft.comparison.captures import Capture
from knft.comparison.compare import compare
from knft.comparison.rendered import kube_proxy_rules
from knft.comparison.sides import KnftInput, Sides, captured_sides
from knft.interpret.rules import Element, RuleSet
from knft_compat import nftables
from tests.support.differences_in_reports import unexpected_differences
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import NamespacedLibrary
from tests.upstream.cases import Case, cases

pytestmark = pytest.mark.kernel

CASES = [pytest.param(case, id=case.name) for case in cases("nftables")]


@pytest.fixture(scope="module")
def library() -> Iterator[NamespacedLibrary]:
    """Return libnftables in an empty network namespace."""
    namespace = Namespace.create("upstream")
    yield NamespacedLibrary(namespace)
    namespace.close()


@pytest.mark.parametrize("case", CASES)
def test_outcomes_are_equal(case: Case, library: NamespacedLibrary) -> None:
    report = compare(_sides(case, library))
    assert unexpected_differences(report) == []
    assert report.is_equal


@pytest.mark.parametrize("case", CASES)
def test_rendered_rules_of_kube_proxy_are_equal(case: Case, library: NamespacedLibrary) -> None:
    """``knft diff --against nftables`` renders the same chains, rules, sets and maps; stale chains are empty."""
    config = case.config(service_cidrs=(case.configuration["serviceCIDRs"],))
    options = structs.replace(case.kube_proxy_options(nftables.Settings()), config=config)
    rendered = kube_proxy_rules(case.changes(), options).rules
    for version, expected in _sides(case, library).left.items():
        if expected.chains:
            found = rendered[version]
            assert _texts(found) == _texts(expected)
            assert _elements(found) == _elements(expected)


def _texts(rules: RuleSet) -> dict[str, list[str]]:
    return {
        name: [rule.text.partition(" # handle ")[0] for rule in chain.rules]
        for name, chain in rules.chains.items()
        if chain.rules
    }


def _elements(rules: RuleSet) -> dict[str, set[Element]]:
    """Return the elements of named sets and maps; the others are part of the rules' text."""
    named = (item for item in rules.collections.items() if " handle " not in item[0])
    return {name: set(collection.elements) for name, collection in named}


def _sides(case: Case, library: NamespacedLibrary) -> Sides:
    """Return the rules of the test, as nft lists them, and knft's."""
    library.run("\n".join(("flush ruleset", *case.result["nft"])))
    knft = KnftInput(case.changes(), case.knft_config(), case.local_addresses)
    return captured_sides(Capture(nftables=library.run("list ruleset").encode()), knft)
