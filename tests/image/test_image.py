"""The image's archive and files."""

import base64
import csv
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.image import sbom
from deploy.image.build import Archive, build
from deploy.image.fetch import cache
from deploy.image.inputs import copy_inputs, inputs_digest
from deploy.image.variant import ARCHITECTURES, DEFAULT, VARIANTS, native_architecture
from knft.kernel.table_flags import flags_of
from tests.image.conftest import CHECKOUT, REVISION, SECONDS
from tests.image.container import Container
from tests.image.unpacked import Image
from tests.support.knft_command import KNFT
from tests.support.waiting import wait_until

MAX_BYTES = 35_000_000
LIBRARY_VERSION = {"debian12": "1.0.6", "debian13": "1.1.3"}
PYTHON_MODULES = "asyncio, bz2, ctypes, decimal, hashlib, json, lzma, multiprocessing, select, socket, ssl, zlib"
"""Modules with parts in C, which need libraries."""


def test_second_build_in_another_folder_has_the_same_digest(
    built: Callable[[str, str], Archive], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build takes half a minute, so equal inputs that passed before are not built twice."""
    first = built(DEFAULT, native_architecture().name)
    record = cache() / "reproduced" / inputs_digest(CHECKOUT)
    if not record.exists():
        copy = tmp_path / "another checkout"
        copy_inputs(CHECKOUT, copy)
        other = tmp_path / "temporary"
        other.mkdir()
        monkeypatch.setenv("TMPDIR", str(other))
        monkeypatch.setenv("PYTHONHASHSEED", "77")
        # pip writes the path of its Python into the commands that it installs.
        (tmp_path / "environment").symlink_to(sys.prefix)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "environment/bin/python"))
        second = build(copy, VARIANTS[DEFAULT], native_architecture(), SECONDS, tmp_path / "dist", revision=REVISION)
        assert second.path.read_bytes() == first.path.read_bytes()
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(first.digest)
    assert record.read_text() == first.digest


@pytest.mark.parametrize(
    ("variant", "architecture"), [(variant, architecture) for variant in VARIANTS for architecture in ARCHITECTURES]
)
def test_archive_has_size_platform_and_labels(
    images: Callable[[str, str], Image], variant: str, architecture: str
) -> None:
    found = images(variant, architecture)
    assert found.archive.bytes <= MAX_BYTES
    assert found.archive.digest == found.index["manifests"][0]["digest"]
    assert found.config["architecture"] == architecture
    assert found.config["os"] == "linux"
    assert "User" not in found.config["config"]
    labels = found.config["config"]["Labels"]
    assert labels["org.opencontainers.image.created"] == "2027-01-15T08:00:00Z"
    assert labels["org.opencontainers.image.version"] in found.archive.path.name
    assert labels["org.opencontainers.image.title"] == "knft"
    assert labels["org.opencontainers.image.licenses"].startswith("Apache-2.0 AND ")
    assert labels["org.opencontainers.image.url"] == "https://knft.dev"
    assert labels["org.opencontainers.image.source"].startswith("https://")
    assert labels["org.opencontainers.image.revision"] == REVISION
    assert found.manifest["annotations"] == labels
    machines = {_machine(path) for path in found.root.rglob("*.so*") if path.is_file() and not path.is_symlink()}
    assert machines - {""} == {ARCHITECTURES[architecture].machine}


def _machine(path: Path) -> str:
    """Return the machine type of an ELF file."""
    header = path.read_bytes()[:20]
    types = {62: "x86_64", 183: "aarch64"}
    return types[int.from_bytes(header[18:20], "little")] if header.startswith(b"\x7fELF") else ""


def test_files_are_root_s_and_none_is_privileged(image: Image) -> None:
    found = list(image.root.rglob("*"))
    assert len(found) > 1000
    for path in found:
        mode = path.lstat()
        assert not mode.st_mode & (stat.S_ISUID | stat.S_ISGID), path
        assert path.is_symlink() or not mode.st_mode & stat.S_IWOTH or path == image.root / "tmp", path


def test_no_symbolic_link_leads_nowhere(image: Image) -> None:
    for path in image.root.rglob("*"):
        if path.is_symlink():
            target = path.readlink()
            inside = image.root / target.relative_to("/") if target.is_absolute() else path.parent / target
            assert inside.exists(), path


def test_sbom_lists_all_packages_with_their_licences(image: Image) -> None:
    document = json.loads((image.root / sbom.PATH).read_text())
    assert document["spdxVersion"] == "SPDX-2.3"
    urls = [each["externalRefs"][0]["referenceLocator"] for each in document["packages"]]
    debian = [re.split("[/@]", url)[2] for url in urls if url.startswith("pkg:deb/debian/")]
    assert {"libnftables1", "libc6", "nftables"} <= set(debian)
    for name in debian:
        assert (image.root / "usr/share/doc" / name / "copyright").is_file(), name
    installed = {path.name for path in (image.root / "usr/lib/python3/dist-packages").glob("*.dist-info")}
    assert len([url for url in urls if url.startswith("pkg:pypi/")]) == len(installed)
    assert any(url.startswith("pkg:pypi/knft@") for url in urls)
    for name in installed:
        folder = image.root / "usr/lib/python3/dist-packages" / name
        texts = [path for path in folder.rglob("*") if re.match("(?i)licen[sc]e|copying|authors|notice", path.name)]
        assert texts or name.startswith(WITHOUT_LICENCE), name
    assert (image.root / "usr/share/doc/knft/Apache-2.0.txt").is_file()
    assert all(len(each["checksums"][0]["checksumValue"]) == 64 for each in document["packages"])


def test_image_is_the_recorded_installer_of_knft(image: Image) -> None:
    folder = image.root / "usr/lib/python3/dist-packages"
    (record,) = folder.glob("knft-*.dist-info/RECORD")
    (row,) = [row for row in csv.reader(record.read_text().splitlines()) if row[0].endswith("/INSTALLER")]
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"image\n").digest()).decode().rstrip("=")
    assert (folder / row[0]).read_text() == "image\n"
    assert row[1:] == [f"sha256={digest}", "6"]


def test_records_of_distributions_name_only_files_of_the_image(image: Image) -> None:
    folder = image.root / "usr/lib/python3/dist-packages"
    for record in folder.glob("*.dist-info/RECORD"):
        names = [row[0] for row in csv.reader(record.read_text().splitlines())]
        assert len(names) > 3, record
        assert [name for name in names if not (folder / name).is_file()] == [], record


def test_licences_that_packages_refer_to_are_in_the_image(image: Image) -> None:
    texts = [path.read_text(errors="replace") for path in image.root.glob("usr/share/doc/*/copyright")]
    named = {name for text in texts for name in re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text)}
    assert {"GPL-2", "GPL-3", "LGPL-2.1"} <= named
    for name in named:
        assert (image.root / "usr/share/common-licenses" / name).is_file(), name
    assert "Debian" in (image.root / "etc/os-release").read_text()


WITHOUT_LICENCE: tuple[str, ...] = ()
"""Distributions whose wheels have no text of a licence."""


def test_start_compiles_nothing(container: Container) -> None:
    done = container.run("/usr/bin/python3", "-I", "-v", "-c", "import knft.cli.main, knft.app.run, knft.kernel.table")
    assert done.returncode == 0, done.stderr
    assert "knft/app/__pycache__/run.cpython" in done.stderr
    compiled = re.findall(r"^# code object from (?!')'?(/.*\.py)'?$", done.stderr, re.MULTILINE)
    assert compiled == []
    assert not re.search(r"# (could not create|wrote) ", done.stderr)


def test_libraries_of_python_modules_are_complete(container: Container, image: Image) -> None:
    done = container.run("/usr/bin/python3", "-I", "-c", f"import {PYTHON_MODULES}")
    assert (done.returncode, done.stderr) == (0, "")
    extensions = sorted(path.name.partition(".")[0] for path in image.root.rglob("lib-dynload/*.so"))
    assert len(extensions) > 30
    # Some modules are deprecated, but the image has them.
    done = container.run("/usr/bin/python3", "-I", "-W", "ignore", "-c", f"import {', '.join(extensions)}")
    assert (done.returncode, done.stderr) == (0, "")


def test_versions(container: Container, image: Image) -> None:
    variant = next(name for name in VARIANTS if name != DEFAULT) if "debian13" in image.archive.path.name else DEFAULT
    assert LIBRARY_VERSION[variant] in container.run("/usr/sbin/nft", "--version").stdout
    found = json.loads(container.run("/usr/bin/knft", "version", "-o", "json").stdout)
    assert found["libnftables"] == LIBRARY_VERSION[variant]
    assert found["installation"] == {
        "method": "image",
        "installer": "image",
        "location": "/usr/lib/python3/dist-packages",
    }


EXAMPLES = CHECKOUT / "examples"
KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))
NODE = ("--node", "node-1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48")


def test_daemon_needs_only_net_admin_and_writes_no_file(container: Container) -> None:
    run = ("/usr/bin/knft", "run", "--once", "--manifests", "/run", *NODE)
    refused = container.run(*run, mount=EXAMPLES, capabilities=())
    assert refused.returncode == 2
    assert "CAP_NET_ADMIN" in refused.stderr
    done = container.run(*run, mount=EXAMPLES)
    assert done.returncode == 0, done.stderr
    listed = container.run("/usr/sbin/nft", "list", "table", "ip", "knft")
    assert "10.96.0.10 . tcp . 80" in listed.stdout


def test_running_daemon_owns_its_tables_if_library_and_kernel_can(
    container: Container, image: Image, tmp_path: Path
) -> None:
    """With libnftables 1.1 from Linux 6.9 on; the next process takes the tables, which remain without their owner."""
    can_own = "debian13" in image.archive.path.name and KERNEL >= (6, 9)
    flags, left = (frozenset({"owner", "persist"}), frozenset({"persist"})) if can_own else (frozenset[str](),) * 2
    for _ in range(2):
        running = container.start(
            "/usr/bin/knft", "run", "--manifests", "/run", *NODE, mount=EXAMPLES, log=tmp_path / "log"
        )
        try:
            running.wait_until(lambda: _flags(container) == {flags} and "10.96.0.10 . tcp . 80" in _rules(container))
        finally:
            running.process.kill()
            running.process.wait()
        wait_until(lambda: _flags(container) == {left}, "the killed process still owns its tables")


def _flags(container: Container) -> set[frozenset[str]]:
    """Return the flags of knft's tables, as the kernel has them."""
    with container.namespace.entered():
        return {flags_of(family, "knft") for family in ("ip", "ip6")}


def _rules(container: Container) -> str:
    listed = container.run("/usr/sbin/nft", "list", "tables").stdout
    return container.run("/usr/sbin/nft", "list", "table", "ip", "knft").stdout if "table ip knft" in listed else ""


@pytest.mark.parametrize("program", ["iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"])
def test_rules_of_kube_proxy_can_be_compared_and_removed(container: Container, program: str) -> None:
    """The image has the programs that read and remove them."""
    chain = "*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n"
    capabilities = ("CAP_NET_ADMIN", "CAP_NET_RAW")
    container.namespace.run([f"{program}-restore"], stdin=chain)
    found = container.run(f"/usr/sbin/{program}-save", capabilities=capabilities)
    assert ":KUBE-SERVICES - [0:0]" in found.stdout, found.stderr
    compared = container.run(
        "/usr/bin/knft", "diff", "--live", "-f", "/run", *NODE, mount=EXAMPLES, capabilities=capabilities
    )
    assert (compared.returncode, compared.stderr) == (1, "")
    assert "Clients would see a difference" in compared.stdout
    # iptables-legacy has a lock file there.
    cleanup = ("/usr/bin/knft", "cleanup", "--kube-proxy", "all")
    removed = container.run(*cleanup, capabilities=capabilities, has_writable_run=True)
    assert removed.returncode == 0, removed.stderr
    assert "KUBE-SERVICES" not in container.namespace.run([f"{program}-save"]).stdout


@pytest.mark.parametrize(
    "command",
    [
        ("render", "-f", "-", *NODE),
        ("diff", "-f", "-", *NODE),
        ("trace", "-f", "-", *NODE, "--from", "192.0.2.1", "--to", "10.96.0.10:80"),
    ],
    ids=lambda command: command[0],
)
def test_other_commands_run_as_any_user(container: Container, command: tuple[str, ...]) -> None:
    """They print the same as outside the image, except for the time: a minute may end between the two runs."""
    objects = "---\n".join(path.read_text() for path in sorted(EXAMPLES.glob("*.yaml")))
    done = container.run_as_nobody("/usr/bin/knft", *command, stdin=objects)
    outside = container.namespace.run([*KNFT, *command], stdin=objects)
    assert (done.returncode, done.stderr) == (0, "")
    printed, printed_outside = (
        re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "(time)", text) for text in (done.stdout, outside.stdout)
    )
    assert printed == printed_outside
    assert (command[0] == "diff") == ("(time)" in printed)
