"""A trace hits the same rules as a packet in the kernel, at every hook and for every interface.

Scenarios compare outcomes; this module compares the rules on the way there, in rule sets that no proxy writes.
"""

import pytest

from tests.support.lab.topology import Lab
from tests.support.packets.rule_hits import SENT_PACKETS, SPECIAL_CHAINS, compare

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("packet", SENT_PACKETS)
@pytest.mark.parametrize("special", SPECIAL_CHAINS)
def test_trace_hits_exactly_the_rules_whose_counters_increase(lab: Lab, special: str, packet: str) -> None:
    compare(lab, special, SENT_PACKETS[packet])
