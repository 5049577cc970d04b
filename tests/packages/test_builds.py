import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from deploy.distributions import build_distribution
from deploy.packages.debian_source import unpack
from deploy.packages.releases import TARGETS
from deploy.roots import cached
from deploy.roots.overlay import Overlay
from knft import __version__
from tests.packages import roots
from tests.packages.conftest import CHECKOUT, SECONDS, Packages

RPM = CHECKOUT / "deploy/packages/rpm"
RECORDS = {".buildinfo", ".changes"}
"""Suffixes of files about a build, which have its time."""


def test_make_packages_builds_identical_files_again(
    packages: Packages, distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    """The command of ``make packages``, which writes all files that docs/operations/packages.md lists."""
    command = [sys.executable, "-m", "deploy.packages", "--only", packages.release, "--output", str(tmp_path)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(SECONDS)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT, env=environment)
    assert done.returncode == 0, done.stderr
    first = [path for path in packages.folder.iterdir() if path != packages.older]
    expected = [*first, *distributions, RPM / "knft.spec"]
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in expected}
    assert {path.suffix for path in expected} == {".deb", ".buildinfo", ".changes", ".gz", ".whl", ".spec"}
    for path in expected:
        if path.suffix not in RECORDS:
            assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_size_is_the_documented_one(packages: Packages) -> None:
    """Sizes in MB are in the columns of the table, one for each release: docs/operations/packages.md#size."""
    text = (CHECKOUT / "docs/operations/packages.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]+) MB[^|]*\| ([\d.]+) MB[^|]*\|$", text, re.MULTILINE)
    column = list(TARGETS).index(packages.release)
    documented = {name: float(sizes[column]) for name, *sizes in rows}
    command = ("dpkg-deb", "--field", str(packages.newest), "Installed-Size")
    kilobytes = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert documented["knft installed"] == pytest.approx(kilobytes * 1024 / 1e6, rel=0.1)
    assert documented["package"] == pytest.approx(packages.newest.stat().st_size / 1e6, rel=0.1)


def test_lintian_has_no_complaint(packages: Packages) -> None:
    target = TARGETS[packages.release]
    with Overlay(cached.root(target.release, target.build), readable={packages.folder: "/packages"}) as overlay:
        (changes,) = packages.folder.glob("*.changes")
        done = _run(overlay, "lintian", "--allow-root", "--fail-on=error,warning", f"/packages/{changes.name}")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_dependencies_have_the_lowest_versions(packages: Packages) -> None:
    """On Debian 13 those of pyproject.toml: its packages have the same names with ``python3-``, except two."""
    names = {"pip-nftables": "nftables", "pyyaml": "yaml"}
    required = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["dependencies"]
    pairs = [each.lower().split(">=") for each in required]
    expected = {
        "debian12": {"python3 (>= 3.11)", "python3 (<< 3.12)"},
        "debian13": {f"python3-{names.get(name, name)} (>= {version})" for name, version in pairs},
    }
    command = ("dpkg-deb", "--field", str(packages.newest), "Depends")
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert expected[packages.release] <= set(found.strip().split(", "))


@pytest.fixture(scope="module")
def distributions(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    return sdist, build_distribution("wheel", CHECKOUT, folder, SECONDS)


def test_wheel_from_the_sdist_is_the_wheel_from_the_tree(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    sdist, wheel = distributions
    sources = unpack(sdist, tmp_path)
    folder = tmp_path / "built"
    again = build_distribution("wheel", sources, folder, SECONDS)
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())


def test_wheel_has_exactly_two_packages_with_their_data(distributions: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(distributions[1]).namelist())
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"knft", "knft_compat"}
    data = {f"knft/present/{name}" for name in ("page.html.j2", "page.css", "page.js", "report.schema.json")}
    assert data <= names


def test_sdist_has_what_packages_are_built_from(sdist: Path) -> None:
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {
        "LICENSES/Apache-2.0.txt",
        "deploy/systemd/knft.service",
        "deploy/manual/__main__.py",
        "tests/conftest.py",
    } <= names
    assert not [name for name in names if re.search(r"(^|/)(\.venv|dist|site|__pycache__)/", name)]


def test_twine_accepts_the_distributions(distributions: tuple[Path, Path]) -> None:
    shown = {path: f"/dist/{path.name}" for path in distributions}
    with Overlay(roots.tools(), readable=shown) as overlay:
        done = _run(overlay, "twine", "check", "--strict", *shown.values())
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_rpm_tools_accept_the_spec() -> None:
    """Fedora's macros for Python and systemd are not in Debian: rpmspec leaves them as they are."""
    with Overlay(roots.tools(), readable={RPM: "/rpm"}) as overlay:
        parsed = _run(overlay, "rpmspec", "--parse", "/rpm/knft.spec")
        assert parsed.returncode == 0, parsed.stderr
        query = _run(overlay, "rpmspec", "--query", "--queryformat", "%{NAME} %{VERSION}", "/rpm/knft.spec")
        assert query.stdout == f"knft {__version__}", query.stderr
        linted = _run(overlay, "rpmlint", "--strict", "--config", "/rpm/rpmlint.toml", "/rpm/knft.spec")
    assert linted.returncode == 0, linted.stdout
    assert "0 errors, 0 warnings" in linted.stdout, linted.stdout


def _run(overlay: Overlay, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(overlay.command(command), capture_output=True, text=True, check=False)
