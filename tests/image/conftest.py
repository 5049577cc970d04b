"""The images, built once for the session, and their unpacked files."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deploy.image.build import Archive, build
from deploy.image.variant import ARCHITECTURES, VARIANTS, native_architecture
from tests.image.container import Container
from tests.image.unpacked import Image, unpack
from tests.support.lab.namespace import Namespace

CHECKOUT = Path(__file__).parents[2]
SECONDS = 1_800_000_000
"""The time of the files in the images of the tests."""
REVISION = "0123456789abcdef0123456789abcdef01234567"
"""The commit that the images name."""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Archive]:
    """Return the archive of a variant and architecture, built when it is first asked for."""
    found: dict[tuple[str, str], Archive] = {}

    def archive(variant: str, architecture: str) -> Archive:
        key = variant, architecture
        if key not in found:
            output = tmp_path_factory.mktemp("dist")
            chosen = VARIANTS[variant], ARCHITECTURES[architecture]
            found[key] = build(CHECKOUT, *chosen, SECONDS, output, revision=REVISION)
        return found[key]

    return archive


@pytest.fixture(scope="session")
def images(
    built: Callable[[str, str], Archive], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Image]:
    """Return the unpacked image of a variant and architecture."""
    found: dict[tuple[str, str], Image] = {}

    def image(variant: str, architecture: str) -> Image:
        key = variant, architecture
        if key not in found:
            found[key] = unpack(built(variant, architecture), tmp_path_factory.mktemp("root"))
        return found[key]

    return image


@pytest.fixture(scope="session", params=list(VARIANTS))
def image(request: pytest.FixtureRequest, images: Callable[[str, str], Image]) -> Image:
    """Each variant for this machine's architecture."""
    return images(request.param, native_architecture().name)


@pytest.fixture
def container(image: Image) -> Iterator[Container]:
    """The image's files in a network namespace of their own."""
    with closing(Namespace.create("image")) as namespace:
        yield Container(image.root, namespace)
