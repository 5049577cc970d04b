"""``python -m tests.vm [PYTEST OPTIONS]`` boots a guest with each kernel, runs tests in it and reports them."""

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from deploy.programs.build import Programs, programs
from deploy.programs.errors import SetupError
from tests.vm import initramfs, kernel, machine, report, user_mode, user_mode_kernel
from tests.vm.errors import UnsupportedHereError, VmError
from tests.vm.guest import Guest

TESTS: Mapping[kernel.Series, Sequence[str]] = {
    kernel.DEBIAN12: (
        "tests/vm/test_old_kernel_packets.py",
        "tests/vm/test_kernel_without_hashing.py",
        "tests/packets/test_consistent_hashing.py",
        "tests/packets/test_hashed_connections.py",
        "tests/packets/test_draining.py",
        "tests/packets/test_invalid_packets.py",
        "tests/packets/test_loopback_nodeports.py",
        "tests/vm/test_ipvs_packets.py",
        "tests/vm/test_ipvs_takeover.py",
        "tests/vm/test_ipvs_migration.py",
        "tests/sync/test_affinity_recovery.py",
    ),
    kernel.DEBIAN13: ("tests/vm/test_debian13_packets.py", "tests/sync/test_endpoint_ids.py"),
}
"""The tests that run in the guest, all of a kernel in one boot. The kernel loads the modules that they need."""
# Each starts commands or knft again, which takes ten seconds and more for each process under qemu. Other tests send the
# same kinds of packets. "make test" and "make test-trixie" run them.
LEFT_OUT_UNDER_QEMU = (
    "--deselect=tests/packets/test_consistent_hashing.py::test_trace_names_the_endpoint_of_a_source_port",
    "--deselect=tests/packets/test_invalid_packets.py::test_rule_is_left_out_if_conntrack_is_liberal_at_start",
    "--deselect=tests/packets/test_loopback_nodeports.py::test_without_the_gate_no_process_and_no_rule_is_left",
    "--deselect=tests/packets/test_loopback_nodeports.py::test_sigterm_ends_both_processes",
    "--deselect=tests/packets/test_loopback_nodeports.py::test_commands_tell_what_a_client_gets",
    "--deselect=tests/packets/test_loopback_nodeports.py::test_commands_tell_that_udp_is_rejected",
    "--deselect=tests/packets/test_loopback_nodeports.py::test_status_tells_which_nodeports_are_served",
)
TIME_LIMIT = 3600.0
"""Seconds after which a guest that is still running is stopped."""
CHECKOUT = Path(__file__).parent.parent.parent


def _main() -> None:
    messages: list[str] = []
    try:
        built = programs()
        for series, tests in TESTS.items():
            messages += _test(series, tests, built)
    except (SetupError, VmError) as error:
        sys.exit(f"test-vm: {error}")
    sys.exit("\n".join(f"test-vm: {message}" for message in messages) or 0)


def choose_guest(series: kernel.Series) -> Guest:
    """Return user-mode Linux for Debian 12's kernel, if it runs here: it is faster. Otherwise qemu runs the kernel."""
    debian = kernel.fetch(series)
    if series == kernel.DEBIAN12:
        user_mode_kernel.check_debian_has_options(user_mode_kernel.CONFIG, debian.config)
        try:
            return user_mode.guest(user_mode_kernel.fetch())
        except UnsupportedHereError as error:
            print(f"test-vm: {error}\ntest-vm: qemu runs kernel {series.version}, three times slower", flush=True)
    return machine.guest(debian)


def _test(series: kernel.Series, tests: Sequence[str], built: Programs) -> Iterator[str]:
    """Run tests on a kernel; yield the reasons why they have failed."""
    started = time.monotonic()
    guest = choose_guest(series)
    left_out = LEFT_OUT_UNDER_QEMU if guest.kind == machine.KIND else ()
    command = [sys.executable, "-m", "pytest", *tests, *left_out, *sys.argv[1:]]
    _prepare(command)
    color = "yes" if sys.stdout.isatty() else "no"
    guest_command = ["env", f"KUBE_PROXY={built.path('kube-proxy')}", *command, "-q", "--color", color]
    result = _run(guest, guest_command, built.folder)
    elapsed = time.monotonic() - started
    print(
        f"test-vm: {result.tests} tests on kernel {result.release} ({guest.kind}), {elapsed:.0f} s in all", flush=True
    )
    yield from result.failure_messages(series.version)


def _prepare(command: list[str]) -> None:
    """Compile knft here, because guests are slower, and fail early if the tests cannot be imported."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", CHECKOUT / "knft"], check=True)
    done = subprocess.run(
        [*command, "--collect-only", "-qq"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        msg = f"the tests cannot be collected:\n{done.stdout}{done.stderr}"
        raise VmError(msg)


def _run(guest: Guest, command: list[str], *folders: Path) -> report.GuestResult:
    booted = guest.kernel
    print(f"test-vm: booting {booted.release} ({guest.kind})", flush=True)
    values = {
        "CHECKOUT": str(CHECKOUT),
        "MODULES": str(booted.all_modules),
        "COMMAND": shlex.join(command),
        "SHARE": guest.share,
        "GUEST": guest.kind,
    }
    settings = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    needed = (CHECKOUT, booted.tree, Path(sys.base_prefix), *folders)
    return report.parse(guest.run(booted, initramfs.build(booted, guest.modules, settings), needed, TIME_LIMIT))


if __name__ == "__main__":
    _main()
