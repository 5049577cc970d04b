"""A part of all scenarios in nftables mode on Debian 13's kernel 6.12, in the virtual machine.

The other kernels run all of them: 6.1 in the virtual machine, and the host's, which is newer.
"""

import pytest

from tests.support.lab import plan
from tests.support.packets.scenario_runner import ScenarioRunner, packet_parameters
from tests.support.scenario import Packet, Scenario, read_scenarios
from tests.vm.test_old_kernel_packets import runner

__all__ = ["runner"]

pytestmark = pytest.mark.kernel

PART = 6
"""One of so many packets is sent."""


@pytest.mark.parametrize(("scenario", "packet", "version"), packet_parameters(read_scenarios())[::PART])
def test_packet_has_the_expected_outcome(
    runner: ScenarioRunner, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    """The packet has the outcome that the scenario expects."""
    runner.check_packet(scenario, packet, version)
