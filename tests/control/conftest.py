"""Fixture: one running knft for each module."""

from collections.abc import Iterator

import pytest

from tests.control.daemon import ControlledKnft


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledKnft]:
    """Return a running knft after its first sync."""
    running = ControlledKnft(tmp_path_factory.mktemp("daemon"))
    running.wait_until_synced()
    yield running
    running.close()
