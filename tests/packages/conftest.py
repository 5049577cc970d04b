"""The packages, built once for the session."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from deploy.distributions import build_distribution
from deploy.packages.debian_build import build_package
from deploy.packages.debian_source import unpack
from deploy.packages.releases import TARGETS
from tests.packages.older import make_older

CHECKOUT = Path(__file__).parents[2]
SECONDS = 1_750_000_000
"""The time of the files in the packages of the tests; in the past, because debhelper only lowers times."""


class Packages(Struct, frozen=True):
    """The package of a release; both are in the same directory."""

    release: str
    newest: Path
    older: Path

    @property
    def folder(self) -> Path:
        """The directory."""
        return self.newest.parent


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of the checkout."""
    return build_distribution("sdist", CHECKOUT, tmp_path_factory.mktemp("sdist"), SECONDS)


@pytest.fixture(scope="session")
def build(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that builds the package of a release."""

    def package(release: str) -> Path:
        sources = unpack(sdist, tmp_path_factory.mktemp("sources"))
        return build_package(sources, TARGETS[release], SECONDS, tmp_path_factory.mktemp("dist"))

    return package


@pytest.fixture(scope="session", params=list(TARGETS))
def packages(
    request: pytest.FixtureRequest, build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Packages:
    """The packages of each release."""
    newest = build(request.param)
    older = make_older(newest, tmp_path_factory.mktemp("older"))
    return Packages(request.param, newest, older.rename(newest.with_name(older.name)))
