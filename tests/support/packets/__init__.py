"""What sends packets, and checks where they arrive, in tests of several folders and jobs."""

import pytest

# pytest explains failed assertions of these modules too.
pytest.register_assert_rewrite(f"{__name__}.scenario_runner", f"{__name__}.modes")
