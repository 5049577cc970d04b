"""Each kind of test and of action does to packets what the kernel does."""

import pytest

from knft.interpret.outcomes import Fate
from knft.interpret.rules import Field, Interface
from tests.interpret.walking import DROP, base, from_node, outcome, rule_set


@pytest.mark.parametrize(
    ("pattern", "inverted", "passes"),
    [("eth0", False, False), ("eth0", True, True), ("*", False, True), ("*", True, False)],
)
def test_a_packet_of_the_node_comes_in_by_no_name(pattern: str, *, inverted: bool, passes: bool) -> None:
    """The empty name is compared: an inverted test passes. Scenarios "masquerade 4" and "5" show it of nftables."""
    rules = rule_set(base("output", (Interface(Field.INPUT, (pattern,), inverted), DROP)))
    assert outcome(rules, from_node()).fate is (Fate.DROPPED if passes else Fate.DELIVERED)
