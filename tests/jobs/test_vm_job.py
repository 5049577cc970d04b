"""The parts of ``make test-vm`` that need no guest."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.scenario import read_scenarios
from tests.vm import initramfs, kernel, machine, user_mode, user_mode_kernel
from tests.vm.__main__ import choose_guest
from tests.vm.errors import UnsupportedHereError, VmError
from tests.vm.initramfs import Entry, archive
from tests.vm.kernel import Kernel
from tests.vm.report import parse
from tests.vm.test_old_kernel_packets import is_traced
from tests.vm.user_mode_kernel import CONFIG, UserModeKernel, check_debian_has_options, check_options


def _report(release: str = "6.1.0-56-cloud-amd64", status: int = 0, **counts: int) -> bytes:
    attributes = {"tests": 109, "failures": 0, "errors": 0, "skipped": 0, **counts}
    written = " ".join(f'{key}="{value}"' for key, value in attributes.items())
    head = f'{release} {status}\n<?xml version="1.0" encoding="utf-8"?>'
    return (
        f'{head}<testsuites name="pytest tests"><testsuite name="pytest" {written}></testsuite></testsuites>'.encode()
    )


def test_report_without_failures_passes() -> None:
    verdict = parse(_report())
    assert verdict.tests == 109
    assert list(verdict.failure_messages("6.1")) == []


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (_report(status=1), "pytest's exit status was 1"),
        (_report(failures=2), "2 tests failed"),
        (_report(errors=1), "1 tests had errors"),
        (_report(skipped=1), "1 tests were skipped"),
        (_report(tests=0), "no test ran"),
        (_report(release="6.18.44"), "the guest's kernel is 6.18.44, not 6.1"),
        (_report(release="6.12.1"), "the guest's kernel is 6.12.1, not 6.1"),
    ],
)
def test_each_failure_fails_the_run(report: bytes, message: str) -> None:
    assert list(parse(report).failure_messages("6.1")) == [message]


@pytest.mark.parametrize(
    "report",
    [b"", b"6.1.0-56-cloud-amd64 4\n", _report()[:-20], b"6.1.0 0\n<testsuites></testsuites>", b"\xff \xff\n<x/>"],
)
def test_incomplete_report_is_an_error(report: bytes) -> None:
    with pytest.raises(VmError, match="without a report"):
        parse(report)


def test_modules_are_loaded_after_their_dependencies(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "modules" / "6.1.0"
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("a/top.ko: b/middle.ko b/base.ko\nb/middle.ko: b/base.ko\nb/base.ko:\n")
    files = Kernel(tmp_path, "6.1.0").modules(["top", "middle"])
    assert [path.name for path in files] == ["base.ko", "middle.ko", "top.ko"]


def test_compressed_modules_are_found_and_builtin_ones_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "modules" / "6.12.1"
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("a/top.ko.xz: b/base.ko.xz\nb/base.ko.xz:\n")
    (folder / "modules.builtin").write_text("kernel/fs/inside.ko\n")
    files = Kernel(tmp_path, "6.12.1").modules(["inside", "top"])
    assert [path.name for path in files] == ["base.ko.xz", "top.ko.xz"]


def test_archive_has_the_newc_format() -> None:
    written = archive([Entry("a/b", stat.S_IFREG | 0o755, b"12345")])
    fields = (
        "00000001 000081ed 00000000 00000000 00000001 00000000 00000005 00000000 00000000 00000000 00000000 00000004"
    )
    # The header has 110 bytes, the name 4 with its NUL: two bytes of padding. The content is padded likewise.
    assert written.startswith(
        b"070701" + fields.replace(" ", "").encode() + b"00000000a/b\0\0\0" + b"12345\0\0\0" + b"070701"
    )
    assert written.endswith(b"TRAILER!!!\0\0\0\0")
    assert len(written) % 4 == 0


def test_program_that_does_not_boot_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any reason counts: here the program is no kernel."""
    monkeypatch.setattr(initramfs, "that_powers_off", bytes)
    program = tmp_path / "linux"
    program.write_text("#!/bin/sh\necho cannot trace processes\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(UnsupportedHereError, match=r"cannot run here: .*cannot trace processes"):
        user_mode.guest(UserModeKernel(tmp_path, "6.1.0"))


def test_qemu_is_used_only_if_user_mode_linux_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it cannot be built, the job fails."""
    debian = Kernel(tmp_path, "6.1.0")
    debian.config.parent.mkdir()
    debian.config.write_text(CONFIG.read_text())
    monkeypatch.setattr(kernel, "fetch", lambda _: debian)
    monkeypatch.setattr(user_mode_kernel, "fetch", lambda: UserModeKernel(tmp_path, "6.1.0"))
    monkeypatch.setattr(user_mode, "guest", _raise(UnsupportedHereError("no ptrace")))
    assert choose_guest(kernel.DEBIAN12) == machine.guest(debian)
    monkeypatch.setattr(user_mode_kernel, "fetch", _raise(VmError("no source")))
    with pytest.raises(VmError, match="no source"):
        choose_guest(kernel.DEBIAN12)


def _raise(error: VmError) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


def test_option_that_is_off_is_named(tmp_path: Path) -> None:
    wanted, written = tmp_path / "wanted", tmp_path / "written"
    wanted.write_text("# Network\nCONFIG_NET=y\nCONFIG_VETH=m\n")
    written.write_text("CONFIG_NET=y\n# CONFIG_VETH is not set\n")
    with pytest.raises(VmError, match=r"off: CONFIG_VETH=m$"):
        check_options(wanted, written)
    written.write_text("CONFIG_NET=y\nCONFIG_VETH=m\n")
    check_options(wanted, written)


def test_option_that_debian_does_not_have_is_named(tmp_path: Path) -> None:
    """Options outside the network may differ, and whether a module is built in."""
    wanted, debian = tmp_path / "wanted", tmp_path / "debian"
    wanted.write_text("CONFIG_HOSTFS=y\nCONFIG_NFT_CT=m\nCONFIG_IP_VS=m\n")
    debian.write_text("CONFIG_NFT_CT=y\n# CONFIG_IP_VS is not set\n")
    with pytest.raises(VmError, match=r"not have: IP_VS$"):
        check_debian_has_options(wanted, debian)
    debian.write_text("CONFIG_NFT_CT=y\nCONFIG_IP_VS=m\n")
    check_debian_has_options(wanted, debian)


def test_only_under_qemu_a_part_of_the_scenarios_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = read_scenarios()
    monkeypatch.setenv("KNFT_GUEST", user_mode.KIND)
    assert all(map(is_traced, scenarios))
    monkeypatch.setenv("KNFT_GUEST", machine.KIND)
    assert 0 < sum(map(is_traced, scenarios)) < len(scenarios) / 5
