"""``knft version``: versions, and how knft was installed: by pip, from source, or recorded as an image or package."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from deploy.installer import NAMES, record_installer
from knft import __version__
from knft.cli.installation import Installation, Method
from knft.cli.version import Versions, format_versions
from tests.cli.example_status import WIDTHS, golden
from tests.support.command_schemas import validated
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.nft_library_version import LIBRARY_VERSION

ROOT = Path(__file__).parents[2]
OTHER_DISTRIBUTIONS = metadata.distribution("click").locate_file("")
FIRST_COLUMN = re.compile(r"^\| (`.+?`) \|", re.MULTILINE)


VERSIONS = {
    "image": Versions(
        "0.1.0", "3.11.2", "1.0.6", "", "6.18.44", Installation(Method.IMAGE, "image", "/usr/lib/python3/dist-packages")
    ),
    "unprivileged": Versions(
        "0.1.0",
        "3.11.2",
        None,
        "CAP_NET_ADMIN is missing: run knft as root, or give its container that capability",
        "6.18.44",
        Installation(Method.WHEEL, "pip", "/home/admin/environments/knft/lib/python3.11/site-packages"),
    ),
}


def version(*command: str, environment: dict[str, str] | None = None) -> Any:
    """Return the output of ``knft version -o json``, run in a folder that has no knft."""
    return validated("version", printed_version(*command, "version", "-o", "json", environment=environment))


def printed_version(*command: str, environment: dict[str, str] | None = None) -> str:
    """Return what a command prints in a folder that has no knft, without the caller's PYTHONPATH."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | (environment or {})
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables, cwd="/")
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def wheel_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with knft's wheel; the other distributions are those of the tests' environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index", "--quiet"]
    subprocess.run([*pip, "wheel", *options, "--no-build-isolation", "-w", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("knft-*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    subprocess.run([*pip, "--python", str(environment), "install", *options, str(wheel)], check=True)
    (site_packages(environment) / "others.pth").write_text(f"{OTHER_DISTRIBUTIONS}\n")
    return environment


def site_packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3.*/site-packages")
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", VERSIONS)
def test_text_of_versions(name: str, width: str) -> None:
    assert format_versions(VERSIONS[name], WIDTHS[width]) == golden(f"version-{name}-{width}")


@pytest.mark.kernel
def test_versions_are_those_of_the_machine() -> None:
    namespace = Namespace.create("version")
    done = namespace.run([*KNFT, "version", "-o", "json"])
    namespace.close()
    found = json.loads(done.stdout)
    del found["installation"]
    assert found == {
        "knft": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "libnftables": LIBRARY_VERSION,
        "libnftables_error": "",
        "kernel": os.uname().release,
    }


@pytest.mark.kernel
def test_version_is_reported_beside_other_tables() -> None:
    """A listing with tables has the library's version too."""
    namespace = Namespace.create("version-tables")
    namespace.run(["nft", "add", "table", "arp", "other"])
    done = namespace.run([*KNFT, "version", "-o", "json"])
    namespace.close()
    assert json.loads(done.stdout)["libnftables"] == LIBRARY_VERSION


def test_missing_privilege_is_part_of_the_output() -> None:
    found = version("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *KNFT)
    assert found["libnftables"] is None
    assert found["libnftables_error"].startswith("CAP_NET_ADMIN is missing: run knft as root")
    command = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *KNFT, "version"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.splitlines()[3] == f"libnftables unknown: {found['libnftables_error']}"


def test_editable_checkout() -> None:
    """``make install`` makes it."""
    found = version(sys.executable, "-m", "knft")["installation"]
    assert found == {"method": "editable", "installer": "pip", "location": str(ROOT)}


def test_wheel_of_pip(wheel_environment: Path) -> None:
    """The tests' editable distribution is visible too, but is not the one that runs."""
    python = str(wheel_environment / "bin/python")
    listed = "from importlib import metadata; print(len(list(metadata.distributions(name='knft'))))"
    done = subprocess.run([python, "-c", listed], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == "2\n"
    found = version(str(wheel_environment / "bin/knft"))["installation"]
    location = str(site_packages(wheel_environment))
    assert found == {"method": "wheel", "installer": "pip", "location": location}
    text = printed_version(str(wheel_environment / "bin/knft"), "version")
    assert text.splitlines()[:2] == [f"knft {__version__}", f"installed: wheel, by pip, in {location}"]


@pytest.mark.parametrize("name", NAMES)
def test_image_and_packages_record_themselves(wheel_environment: Path, tmp_path: Path, name: str) -> None:
    """The list of files has the digest of the changed file."""
    copy = tmp_path / "environment"
    shutil.copytree(wheel_environment, copy, symlinks=True)
    folder = site_packages(copy)
    command = [sys.executable, "-m", "deploy.installer", str(folder), name]
    subprocess.run(command, check=True, cwd=ROOT)
    found = version(str(copy / "bin/python"), "-m", "knft")["installation"]
    assert found == {"method": name, "installer": name, "location": str(folder)}
    (distribution,) = metadata.distributions(name="knft", path=[str(folder)])
    (installer,) = [path for path in distribution.files or () if path.name == "INSTALLER"]
    assert installer.size == len(name) + 1
    assert installer.hash is not None
    digest = hashlib.sha256(Path(str(installer.locate())).read_bytes()).digest()
    assert installer.hash.value == base64.urlsafe_b64encode(digest).decode().rstrip("=")


def test_source_that_is_not_installed(tmp_path: Path) -> None:
    """The tests' distribution refers to another folder."""
    shutil.copytree(ROOT / "knft", tmp_path / "knft", ignore=shutil.ignore_patterns("__pycache__"))
    found = version(sys.executable, "-m", "knft", environment={"PYTHONPATH": str(tmp_path)})["installation"]
    assert found == {"method": "source", "installer": "", "location": str(tmp_path)}


def test_installer_of_a_folder_without_knft_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has 0 folders knft-\*\.dist-info, expected 1: install knft's wheel there"):
        record_installer(tmp_path, "deb")


def test_documentation_lists_the_fields() -> None:
    """Fields of the output are those of the table, and the methods too."""
    section = (ROOT / "docs/operations/index.md").read_text().partition("{#version}")[2].partition("\n## ")[0]
    found = version(*KNFT)
    fields = {name for name in found if name != "installation"}
    fields |= {f"installation.{name}" for name in found["installation"]}
    assert set(re.findall(r"`([\w.]+)`", " ".join(FIRST_COLUMN.findall(section)))) == fields | {
        method.value for method in Method
    }
