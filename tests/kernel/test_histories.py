"""The law that holds it together: after any history the table equals what a fresh process would render (DESIGN.md 2).

``tests.kernel.law`` says apart from what. After each sync what the kernel holds is held against what a fresh process
renders; at the end of each history against what it makes of a kernel, rules and all.
"""

import logging
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.kernel.hard_history import HardHistory

pytestmark = pytest.mark.kernel

HISTORIES, STEPS = 45, 50
AT_LEAST = 2000
"""Steps, of those 2 250: hypothesis gives a history up where it has drawn too much."""

CHANCE = st.randoms(use_true_random=False)
KIND = st.sampled_from(("Service", "Service", "EndpointSlice", "EndpointSlice", "Node", "ServiceCIDR"))
AT_ONCE = st.booleans()


class Histories(RuleBasedStateMachine):
    """Each rule is one verb of ``History``; ``at_once`` tells whether a sync follows."""

    steps = 0
    syncs = 0
    without_some = 0

    @initialize(chance=CHANCE)
    def begin(self, chance: Random) -> None:
        self.history = HardHistory(chance)

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
    def poison(self, chance: Random) -> None:
        self.history.poison(chance)
        for kind in ("Service", "EndpointSlice", "EndpointSlice", "EndpointSlice"):
            self.history.change(kind, chance)
        self.history.sync()

    @rule(chance=CHANCE)
    def unpoison(self, chance: Random) -> None:
        self.history.unpoison(chance)

    @rule(chance=CHANCE)
    def fail_hard(self, chance: Random) -> None:
        self.history.fail_hard(chance)

    @rule(chance=CHANCE)
    def damage_live(self, chance: Random) -> None:
        self.history.damage_live(chance)

    @rule(chance=CHANCE)
    def forget_layout(self, chance: Random) -> None:
        self.history.forget_layout(chance)

    @rule()
    def sync(self) -> None:
        self.history.sync()

    def _sync_if(self, at_once: bool) -> None:  # noqa: FBT001 - a draw, handed on
        if at_once:
            self.history.sync()

    def teardown(self) -> None:
        try:
            self.history.finish()
        finally:
            self.history.close()
            Histories.steps += self.history.steps
            Histories.syncs += self.history.syncs
            Histories.without_some += self.history.syncs_without_some


def test_any_history_ends_where_a_fresh_start_does(caplog: pytest.LogCaptureFixture) -> None:
    """And every transaction on the way is one that the schema knows and the kernel takes."""
    caplog.set_level(logging.CRITICAL, "knft")  # Thousands of lost frontends are named.
    Histories.steps = Histories.syncs = Histories.without_some = 0
    chosen = settings(
        max_examples=HISTORIES,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=True,
        # Shrinking takes minutes, and the last steps that are told say enough.
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(Histories, settings=chosen)

    assert Histories.steps >= AT_LEAST
    assert Histories.syncs >= AT_LEAST // 4
    print(f"{Histories.without_some} of {Histories.syncs} syncs left something out")
    assert Histories.without_some >= AT_LEAST // 200
