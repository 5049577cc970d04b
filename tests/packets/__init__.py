"""Tests that send packets through knft's rules, in the lab of ``tests.support.lab``.

``test_scenarios.py`` runs the clusters and packets of ``tests/scenarios``. The other modules need a running knft,
traffic during changes, or time that passes.
"""

import pytest

# pytest explains failed assertions of these modules too.
pytest.register_assert_rewrite("tests.support.packets.scenario_runner", "tests.support.packets.modes")
