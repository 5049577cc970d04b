"""Command line: builds the packages."""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from deploy.distributions import build_distribution
from deploy.image.errors import ImageError
from deploy.packages.debian_build import build_package
from deploy.packages.debian_source import unpack
from deploy.packages.errors import PackageError
from deploy.packages.releases import TARGETS
from deploy.programs.errors import SetupError
from deploy.roots.errors import RootError
from deploy.source_date import SourceDateError, source_date_epoch

_ROOT = Path(__file__).parents[2]
_SPEC = Path(__file__).with_name("rpm") / "knft.spec"


def main() -> None:
    """Build the packages that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m deploy.packages", description="Build the packages of knft.")
    parser.add_argument("--only", choices=TARGETS, action="append", help="the package of this release; default: all")
    parser.add_argument("--output", type=Path, default=_ROOT / "dist", help="folder for the packages; default: dist")
    arguments = parser.parse_args()
    try:
        _build(arguments.only or list(TARGETS), arguments.output)
    except (ImageError, PackageError, RootError, SetupError, SourceDateError) as error:
        sys.exit(f"packages: {error}")


def _build(releases: list[str], output: Path) -> None:
    seconds = source_date_epoch(_ROOT)
    if seconds > time.time():
        # debhelper only lowers the times of files.
        msg = f"the time for files, {seconds}, is in the future: set SOURCE_DATE_EPOCH to an earlier one"
        raise PackageError(msg)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="knft-packages-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        sdist = build_distribution("sdist", _ROOT, folder, seconds)
        wheel = build_distribution("wheel", _ROOT, folder, seconds)
        for path in (sdist, wheel, _SPEC):
            _report(Path(shutil.copy(path, output)))
        for release in releases:
            place = folder / release
            place.mkdir()
            _report(build_package(unpack(sdist, place), TARGETS[release], seconds, output))


def _report(path: Path) -> None:
    print(f"packages: {path} ({path.stat().st_size / 1e6:.2f} MB)", flush=True)


if __name__ == "__main__":
    main()
