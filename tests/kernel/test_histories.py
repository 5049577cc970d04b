"""Equivalence: after any history the table equals what a fresh process would render.

See docs/verification.md#equivalence and ``tests.kernel.equivalence``. Each sync is compared with the contents that a
fresh process renders, and the end of each history with the tables and rules that it creates on another kernel.
"""

import logging
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.kernel.failing_history import FailingHistory

pytestmark = pytest.mark.kernel

HISTORIES, STEPS = 45, 50
AT_LEAST = 2000
"""The required number of steps, out of 2 250: hypothesis abandons a history that draws too much data."""

CHANCE = st.randoms(use_true_random=False)
KIND = st.sampled_from(("Service", "Service", "EndpointSlice", "EndpointSlice", "Node", "ServiceCIDR"))
AT_ONCE = st.booleans()


class Histories(RuleBasedStateMachine):
    """Each rule is one event of ``History``; ``at_once`` decides whether a sync follows."""

    steps = 0
    syncs = 0
    degraded_syncs = 0

    @initialize(chance=CHANCE)
    def begin(self, chance: Random) -> None:
        self.history = FailingHistory(chance)

    @rule(kind=KIND, chance=CHANCE, at_once=AT_ONCE)
    def add(self, kind: str, chance: Random, *, at_once: bool) -> None:
        self.history.add(kind, chance)
        self._sync_if(at_once)

    @rule(kind=KIND, chance=CHANCE, at_once=AT_ONCE)
    def change(self, kind: str, chance: Random, *, at_once: bool) -> None:
        self.history.change(kind, chance)
        self._sync_if(at_once)

    @rule(kind=KIND, chance=CHANCE, at_once=AT_ONCE)
    def delete(self, kind: str, chance: Random, *, at_once: bool) -> None:
        self.history.delete(kind, chance)
        self._sync_if(at_once)

    @rule(chance=CHANCE)
    def change_addresses(self, chance: Random) -> None:
        self.history.change_addresses(chance)

    @rule(chance=CHANCE)
    def pass_time(self, chance: Random) -> None:
        self.history.pass_time(chance)

    @rule(chance=CHANCE)
    def fail(self, chance: Random) -> None:
        self.history.fail(chance)

    @rule(chance=CHANCE)
    def restart(self, chance: Random) -> None:
        self.history.restart(chance)

    @rule(chance=CHANCE)
    def damage(self, chance: Random) -> None:
        self.history.damage(chance)

    @rule(chance=CHANCE)
    def refuse_cluster_ips(self, chance: Random) -> None:
        self.history.refuse_cluster_ips(chance)
        for kind in ("Service", "EndpointSlice", "EndpointSlice", "EndpointSlice"):
            self.history.change(kind, chance)
        self.history.sync()

    @rule(chance=CHANCE)
    def stop_refusing(self, chance: Random) -> None:
        self.history.stop_refusing(chance)

    @rule(chance=CHANCE)
    def fail_repeatedly(self, chance: Random) -> None:
        self.history.fail_repeatedly(chance)

    @rule(chance=CHANCE)
    def change_table_while_monitored(self, chance: Random) -> None:
        self.history.change_table_while_monitored(chance)

    @rule(chance=CHANCE)
    def delete_layout_marker(self, chance: Random) -> None:
        self.history.delete_layout_marker(chance)

    @rule()
    def sync(self) -> None:
        self.history.sync()

    def _sync_if(self, at_once: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        if at_once:
            self.history.sync()

    def teardown(self) -> None:
        try:
            self.history.finish()
        finally:
            self.history.close()
            Histories.steps += self.history.steps
            Histories.syncs += self.history.syncs
            Histories.degraded_syncs += self.history.degraded_syncs


def test_any_history_ends_with_the_tables_of_a_fresh_start(caplog: pytest.LogCaptureFixture) -> None:
    """All transactions on the way match the schema and are accepted by the kernel."""
    caplog.set_level(logging.CRITICAL, "knft")  # Suppresses thousands of lines about contested frontends.
    Histories.steps = Histories.syncs = Histories.degraded_syncs = 0
    chosen = settings(
        max_examples=HISTORIES,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=True,
        # Shrinking takes minutes; the reported last steps suffice.
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(Histories, settings=chosen)

    assert Histories.steps >= AT_LEAST
    assert Histories.syncs >= AT_LEAST // 4
    print(f"{Histories.degraded_syncs} of {Histories.syncs} syncs were degraded")
    assert Histories.degraded_syncs >= AT_LEAST // 200
