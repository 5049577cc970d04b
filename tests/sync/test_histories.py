"""Equivalence: after any history the table equals what a fresh process would render.

See docs/verification.md#equivalence and ``tests.support.equivalence``. Each sync is compared with the contents that a
fresh process renders, and the end of each history with the tables and rules that it creates on another kernel.
"""

import logging
from collections import Counter
from random import Random
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from knft.render import wide
from tests.support.failing_history import FailingHistory
from tests.support.history import FEATURES
from tests.support.property_seed import fixed_seed

pytestmark = pytest.mark.kernel

SEEDS = (0, 1, 2, 4, 5)
"""Each is a test of its own, so that the processes of a test run share the work; each has degraded syncs."""

HISTORIES, STEPS = 7, 50
MIN_STEPS = 310
"""The required number of steps of a seed, out of 350: hypothesis abandons a history that draws too much data."""

MAX_STEPS, RESTARTS = 300, 0.2
"""The limit of steps until each feature was in force, and the part of them with a restart, which may change flags."""

RNG = st.randoms(use_true_random=False)
KIND = st.sampled_from(("Service", "Service", "EndpointSlice", "EndpointSlice", "Node", "ServiceCIDR"))
AT_ONCE = st.booleans()


class Histories(RuleBasedStateMachine):
    """Each rule is one event of ``History``; ``at_once`` decides whether a sync follows."""

    steps = 0
    syncs = 0
    degraded_syncs = 0
    features: ClassVar[Counter[str]] = Counter()

    @initialize(rng=RNG)
    def begin(self, rng: Random) -> None:
        self.history = FailingHistory(rng)

    @rule(kind=KIND, rng=RNG, at_once=AT_ONCE)
    def add(self, kind: str, rng: Random, *, at_once: bool) -> None:
        self.history.add(kind, rng)
        self._sync_if(at_once)

    @rule(kind=KIND, rng=RNG, at_once=AT_ONCE)
    def change(self, kind: str, rng: Random, *, at_once: bool) -> None:
        self.history.change(kind, rng)
        self._sync_if(at_once)

    @rule(kind=KIND, rng=RNG, at_once=AT_ONCE)
    def delete(self, kind: str, rng: Random, *, at_once: bool) -> None:
        self.history.delete(kind, rng)
        self._sync_if(at_once)

    @rule(rng=RNG)
    def change_addresses(self, rng: Random) -> None:
        self.history.change_addresses(rng)

    @rule(rng=RNG)
    def pass_time(self, rng: Random) -> None:
        self.history.pass_time(rng)

    @rule(rng=RNG)
    def fail(self, rng: Random) -> None:
        self.history.fail_next_requests(rng)

    @rule(rng=RNG)
    def restart(self, rng: Random) -> None:
        self.history.restart(rng)

    @rule(rng=RNG)
    def damage(self, rng: Random) -> None:
        self.history.damage_table(rng)

    @rule(rng=RNG)
    def refuse_cluster_ips(self, rng: Random) -> None:
        self.history.refuse_cluster_ips(rng)
        for kind in ("Service", "EndpointSlice", "EndpointSlice", "EndpointSlice"):
            self.history.change(kind, rng)
        self.history.sync()

    @rule(rng=RNG)
    def stop_refusing(self, rng: Random) -> None:
        self.history.stop_refusing(rng)

    @rule(rng=RNG)
    def fail_repeatedly(self, rng: Random) -> None:
        self.history.fail_repeatedly(rng)

    @rule(rng=RNG)
    def change_table_while_monitored(self, rng: Random) -> None:
        self.history.change_table_while_monitored(rng)

    @rule(rng=RNG)
    def add_foreign_objects(self, rng: Random) -> None:
        self.history.add_foreign_objects(rng)

    @rule(rng=RNG)
    def delete_layout_marker(self, rng: Random) -> None:
        self.history.delete_layout_marker(rng)

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
            counts = type(self)
            counts.steps += self.history.steps
            counts.syncs += self.history.syncs
            counts.degraded_syncs += self.history.degraded_syncs
            counts.features += self.history.features


@pytest.mark.property
@pytest.mark.parametrize("number", SEEDS)
def test_any_history_ends_with_the_tables_of_a_fresh_start(
    number: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All transactions on the way match the schema and are accepted by the kernel."""
    # Small Services become wide, too, and change between the layouts.
    monkeypatch.setattr(wide, "COPIES_FACTOR", 1)
    caplog.set_level(logging.CRITICAL, "knft")  # Suppresses thousands of lines about contested frontends.
    chosen = settings(
        max_examples=HISTORIES,
        stateful_step_count=STEPS,
        deadline=None,
        # Shrinking takes minutes; the reported last steps suffice.
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )

    class SeededHistories(Histories):
        steps = syncs = degraded_syncs = 0
        features: ClassVar[Counter[str]] = Counter()

    counts = SeededHistories
    fixed_seed(number)(counts)
    run_state_machine_as_test(counts, settings=chosen)

    assert counts.steps >= MIN_STEPS
    assert counts.syncs >= MIN_STEPS // 4
    print(f"{counts.degraded_syncs} of {counts.syncs} syncs were degraded")
    assert counts.degraded_syncs >= MIN_STEPS // 200
    print(f"syncs with each feature: {dict(counts.features)}")


def test_random_histories_draw_each_optional_feature() -> None:
    """What hypothesis draws from a seed depends on the modules that are loaded; these draws do not."""
    rng = Random(1)  # noqa: S311 - reproducible
    history = FailingHistory(rng)
    try:
        for _ in range(MAX_STEPS):
            history.add("Service", rng)
            history.change(rng.choice(("Service", "EndpointSlice")), rng)
            if rng.random() < RESTARTS:
                history.restart(rng)
            history.sync()
            if history.features.keys() == set(FEATURES):
                break
    finally:
        history.close()
    assert history.features.keys() == set(FEATURES)
