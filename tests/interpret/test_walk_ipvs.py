"""IPVS takes packets to virtual servers where the kernel has it do so, and sends them on."""

import pytest

from knft.interpret.outcomes import Fate, Outcome
from knft.interpret.ranges import Ranges, ranges, single
from knft.interpret.rules import Server
from tests.interpret.walking import FRONTEND, NODE, POD, TCP, from_node, outcome, rule_set

SERVER = Server(FRONTEND, TCP, 80, "rr", ((POD, 8080, 1),))


@pytest.mark.parametrize(
    ("sources", "source"),
    [(single(FRONTEND), "frontend"), (ranges([(0, 99)]), "frontend"), (single(NODE), "kept")],
)
def test_the_node_dials_a_bound_address_from_that_address_unless_it_is_told_another(
    sources: Ranges, source: str
) -> None:
    """Scenario "masquerade": the node as ``$node.pods``."""
    rules = rule_set(servers=(SERVER,), bound=single(FRONTEND))
    found = outcome(rules, from_node(sources=sources))
    assert found == Outcome(Fate.DELIVERED, POD, 8080, source)  # type: ignore[arg-type] # one of the words
