"""Tests that send packets through knft's rules, in the lab of ``tests.support.lab``.

``test_scenarios.py`` runs the clusters and packets of ``tests/scenarios``; the other modules test what needs a running
knft, or time.
"""

import pytest

# pytest explains failed assertions of these modules too.
pytest.register_assert_rewrite("tests.packets.scenario_runner", "tests.packets.modes")
