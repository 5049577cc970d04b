"""knft's rules for the objects of kube-proxy's unit tests have the outcomes of the nftables rules of those tests."""

from collections.abc import Iterator

import pytest

from knft.comparison.captures import Capture
from knft.comparison.compare import compare
from knft.comparison.sides import KnftInput, Sides, captured_sides
from tests.interpret.compare.reports import unexpected_differences
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


def _sides(case: Case, library: NamespacedLibrary) -> Sides:
    """Return the rules of the test, as nft lists them, and knft's."""
    library.run("\n".join(("flush ruleset", *case.result["nft"])))
    knft = KnftInput(case.changes(), case.knft_config(), case.local_addresses)
    return captured_sides(Capture(nftables=library.run("list ruleset").encode()), knft)
