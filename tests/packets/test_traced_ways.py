"""The rules that a trace says a packet meets are those that count it in the kernel: at every hook, by every interface.

Scenarios hold the outcomes; this holds the way there, of rules that no proxy has.
"""

import pytest

from tests.packets.ways import SPECIAL, WAYS, compare
from tests.support.lab.topology import Lab

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("special", SPECIAL)
def test_traced_rules_are_those_that_count(lab: Lab, special: str, way: str) -> None:
    compare(lab, special, WAYS[way])
