"""Every scenario in nftables mode on kernel 6.1, in the virtual machine.

knft's daemon runs in this process, because ``knft run`` takes seconds to start there. Under qemu only a part of the
scenarios is traced: to read the rules of all of them would take half the time.
"""

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.lab import plan
from tests.support.lab.topology import Lab
from tests.support.packets.modes import NftablesInProcess
from tests.support.packets.scenario_runner import ScenarioRunner, packet_parameters, scenario_runner
from tests.support.scenario import Packet, Scenario, read_scenarios
from tests.vm import machine

pytestmark = pytest.mark.kernel

TRACED = frozenset(scenario.name for scenario in read_scenarios()[::6])
"""The names of the scenarios that are traced even under qemu."""


def is_traced(scenario: Scenario) -> bool:
    """Tell whether the packets of a scenario are traced too, through the rules that the kernel lists."""
    return os.environ.get("KNFT_GUEST") != machine.KIND or scenario.name in TRACED


@pytest.fixture(scope="module")
def runner(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioRunner]:
    with (
        closing(NftablesInProcess(lab.host("node").namespace)) as mode,
        scenario_runner(lab, tmp_path_factory.mktemp("manifests"), mode, is_traced) as runner,
    ):
        yield runner


@pytest.mark.parametrize(("scenario", "packet", "version"), packet_parameters(read_scenarios()))
def test_packet_has_the_expected_outcome(
    runner: ScenarioRunner, scenario: Scenario, packet: Packet, version: plan.Version
) -> None:
    """The packet has the outcome that the scenario expects."""
    runner.check_packet(scenario, packet, version)
