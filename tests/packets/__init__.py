"""Real packets through the ruleset that ``knft run`` made, between the lab's network namespaces."""

import pytest

# What is asserted there is told as in a test.
pytest.register_assert_rewrite("tests.packets.scene", "tests.packets.modes")
