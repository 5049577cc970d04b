import re
import shlex
import shutil
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.version import Version

from deploy.packages import debian_source
from deploy.packages.errors import PackageError
from deploy.packages.releases import TARGETS
from knft import __version__
from tests.packages import older

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "deploy/packages"
SECONDS = 1_800_000_000


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The part of the sources that the Debian source tree is made from."""
    for name in ("knft/__init__.py", "deploy/systemd/knft.service", "deploy/systemd/knft.sysusers"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_changelog_has_the_version_of_the_sources_and_the_given_time(sources: Path) -> None:
    debian_source.add_debian_tree(sources, TARGETS["debian13"], SECONDS)
    lines = (sources / "debian/changelog").read_text().splitlines()
    assert (
        lines[0] == f"knft ({debian_source.package_version(__version__, TARGETS['debian13'])}) trixie; urgency=medium"
    )
    assert lines[-1] == " -- The knft authors <maintainers@knft.dev>  Fri, 15 Jan 2027 08:00:00 -0000"
    assert {path.stat().st_mtime for path in sources.rglob("*")} == {SECONDS}


def test_sources_without_a_version(sources: Path) -> None:
    (sources / "knft/__init__.py").write_text("")
    with pytest.raises(PackageError, match="has no version"):
        debian_source.version_of(sources)


def test_an_upgrade_of_the_release_replaces_the_package() -> None:
    versions = [debian_source.package_version(__version__, TARGETS[name]) for name in ("debian12", "debian13")]
    subprocess.run(["dpkg", "--compare-versions", versions[0], "lt", versions[1]], check=True)  # noqa: S607


def test_wheels_of_debian_12_are_pinned_by_their_hashes() -> None:
    """Without --require-hashes, only knft's own wheel is installed, which the build makes."""
    rules = (ROOT / "deploy/packages/debian/debian12/rules").read_text()
    installations = re.findall(r"^\t\$\(PIP\) (.+)$", rules, re.MULTILINE)
    assert len(installations) == 3
    (unpinned,) = [each for each in installations if "--require-hashes" not in each.split()]
    assert unpinned == "--target $(SITE) knft==$(subst ~,,$(DEB_VERSION_UPSTREAM))"
    assert all(flag in rules.partition("%:")[0] for flag in ("--no-index", "--no-deps"))


def test_spec_has_the_version() -> None:
    spec = (ROOT / "deploy/packages/rpm/knft.spec").read_text()
    assert f"\nVersion:        {__version__}\n" in spec


def test_pre_releases_are_replaced_by_the_release() -> None:
    upstream = ["0.1.0.dev1", "0.1.0a1", "0.1.0b1", "0.1.0rc1.dev2", "0.1.0rc1", "0.1.0", "0.1.1.dev1"]
    versions = [debian_source.package_version(each, TARGETS["debian12"]) for each in upstream]
    for lower, higher in pairwise(versions):
        subprocess.run(["dpkg", "--compare-versions", lower, "lt", higher], check=True)  # noqa: S607
    assert versions[4] == "0.1.0~rc1-1~deb12"
    # As debian12/rules derives Python's version.
    derived = [version.rpartition("-")[0].replace("~", "") for version in versions]
    assert [Version(each) for each in derived] == [Version(each) for each in upstream]


def test_purge_deletes_the_user_of_the_package() -> None:
    fields = shlex.split((ROOT / "deploy/systemd/knft.sysusers").read_text().splitlines()[1])
    assert fields[:3] == ["u", "knft", "-"]
    (own,) = re.findall("own='(.+)'", (ROOT / "deploy/packages/debian/common/postrm").read_text())
    user = ":".join(fields[3:])
    assert re.fullmatch(own, f"knft:x:999:999:{user}")
    for other in (
        f"knft:x:1000:1000:{user}",
        "knft:x:999:999:somebody:/:/usr/sbin/nologin",
        "knft:x:999:999::/:/bin/sh",
    ):
        assert not re.fullmatch(own, other)


def test_documentation_names_placeholders_and_the_older_package() -> None:
    """With real addresses, or an upgrade from a release, the page has to change."""
    page = (ROOT / "docs/operations/packages.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page.partition("{#limits}")[2], re.MULTILINE))
    sources = [*PACKAGES.rglob("control"), *PACKAGES.rglob("*.spec"), *PACKAGES.rglob("*.py")]
    text = "".join(path.read_text() for path in sources)
    addresses = {*re.findall(r"<(\S+@\S+)>", text), *re.findall(r"^(?:Homepage|URL): +(\S+)$", text, re.MULTILINE)}
    assert len(addresses) == 2
    assert set(re.findall("`(.+?)`", rows["addresses"])) == addresses
    assert f"`{older.VERSION}`" in rows["upgrade from a released version"]
    assert f"apt install ./knft_{debian_source.package_version(__version__, TARGETS['debian13'])}_all.deb\n" in page


def test_overrides_of_linters_have_reasons() -> None:
    """A comment stands before each override of lintian, and begins with the name of each filter of rpmlint."""
    for path in PACKAGES.rglob("lintian-overrides"):
        lines = path.read_text().splitlines()
        assert lines
        assert all(line.startswith("#") == (number % 2 == 0) for number, line in enumerate(lines)), path
    text = (PACKAGES / "rpm/rpmlint.toml").read_text()
    filters = {each.partition(" ")[0] for each in tomllib.loads(text)["Filters"]}
    assert filters == set(re.findall(r"^# ([\w-]+): ", text, re.MULTILINE))
