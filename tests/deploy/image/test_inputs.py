"""The inputs of the image: everything that a build imports or reads in a checkout is one of them."""

import shutil
import tomllib
from pathlib import Path

import grimp

from deploy.image.inputs import copy_inputs, input_files, inputs_digest
from deploy.image.lock import BUILD_WHEELS, packages_file, wheels_file
from deploy.image.variant import ARCHITECTURES, VARIANTS

CHECKOUT = Path(__file__).parents[3]


def _inputs() -> set[str]:
    return {str(path.relative_to(CHECKOUT)) for path in input_files(CHECKOUT)}


def test_modules_of_the_build_are_inputs() -> None:
    """All that the build imports of this repository, also inside functions, and their packages."""
    graph = grimp.build_graph("deploy", "knft", "tests", cache_dir=None)
    modules = {"deploy.image.build", *graph.find_upstream_modules("deploy.image.build")}
    assert {"deploy.distributions", "deploy.installer", "deploy.image.layer"} <= modules
    packages = {module.rpartition(".")[0] for module in modules} | {module.partition(".")[0] for module in modules}
    assert {_source(module) for module in modules | packages} - _inputs() == set()


def _source(module: str) -> str:
    path = Path(*module.split("."))
    return str(path / "__init__.py") if (CHECKOUT / path).is_dir() else f"{path}.py"


def test_files_that_the_build_reads_are_inputs() -> None:
    """The locks, and what pyproject.toml puts into the wheel; the second build in another folder has no other files."""
    pairs = [(variant, architecture) for variant in VARIANTS.values() for architecture in ARCHITECTURES.values()]
    locks = [BUILD_WHEELS, *(path(*pair) for pair in pairs for path in (packages_file, wheels_file))]
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    project, wheel = settings["project"], settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    licences = [path for pattern in project["license-files"] for path in CHECKOUT.glob(pattern)]
    sources = [path for package in wheel["packages"] for path in (CHECKOUT / package).rglob("*.py")]
    assert len(sources) > 100
    read = {*locks, *licences, *sources, CHECKOUT / project["readme"], CHECKOUT / "pyproject.toml"}
    assert {str(path.relative_to(CHECKOUT)) for path in read} - _inputs() == set()


def test_change_of_any_input_changes_the_digest(tmp_path: Path) -> None:
    """Also a new name; files that Python writes do not count."""
    copy = tmp_path / "copy"
    copy_inputs(CHECKOUT, copy)
    digests = {inputs_digest(copy)}
    assert digests == {inputs_digest(CHECKOUT)}
    for name in ("deploy/distributions.py", "deploy/image/locks/build.wheels", "knft/__init__.py"):
        (copy / name).write_text(f"{(copy / name).read_text()}#\n")
        digests.add(inputs_digest(copy))
    package = copy / "knft"
    shutil.move(package / "__init__.py", package / "renamed.py")
    digests.add(inputs_digest(copy))
    assert len(digests) == 5
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "renamed.pyc").touch()
    assert inputs_digest(copy) in digests
