"""``python -m tests.vm [PYTEST OPTIONS]`` boots the virtual machine, runs TESTS in it and reports the result."""

import shlex
import subprocess
import sys
import time
from pathlib import Path

from deploy.programs.build import programs
from deploy.programs.errors import SetupError
from tests.vm import initramfs, kernel, machine, report
from tests.vm.errors import VmError

TESTS = (
    "tests/vm/test_old_kernel_packets.py",
    "tests/vm/test_ipvs_packets.py",
    "tests/vm/test_ipvs_takeover.py",
    "tests/vm/test_ipvs_migration.py",
    "tests/sync/test_affinity_recovery.py",
)
"""The tests that run in the guest, all in one boot. The kernel loads the modules that they need."""
TIME_LIMIT = 3000.0
"""Seconds after which a guest that is still running is stopped."""
CHECKOUT = Path(__file__).parent.parent.parent


def _main() -> None:
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", *TESTS, *sys.argv[1:]]
    try:
        _prepare(command)
        built = programs()
        color = "yes" if sys.stdout.isatty() else "no"
        guest_command = ["env", f"KUBE_PROXY={built.path('kube-proxy')}", *command, "-q", "--color", color]
        result = _run(kernel.fetch(), guest_command, built.folder)
    except (SetupError, VmError) as error:
        sys.exit(f"test-vm: {error}")
    elapsed = time.monotonic() - started
    print(f"test-vm: {result.tests} tests on kernel {result.release}, {elapsed:.0f} s in all", flush=True)
    sys.exit("\n".join(f"test-vm: {message}" for message in result.failure_messages()) or 0)


def _prepare(command: list[str]) -> None:
    """Compile knft here, because the guest is 15 times slower, and fail early if the tests cannot be imported."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", CHECKOUT / "knft"], check=True)
    done = subprocess.run(
        [*command, "--collect-only", "-qq"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        msg = f"the tests cannot be collected:\n{done.stdout}{done.stderr}"
        raise VmError(msg)


def _run(chosen: kernel.Kernel, command: list[str], *folders: Path) -> report.GuestResult:
    print(f"test-vm: booting {chosen.release}", flush=True)
    values = {"CHECKOUT": str(CHECKOUT), "MODULES": str(chosen.all_modules), "COMMAND": shlex.join(command)}
    settings = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    needed = (CHECKOUT, chosen.tree, Path(sys.base_prefix), *folders)
    return report.parse(machine.run(chosen, initramfs.build(chosen, settings), needed, TIME_LIMIT))


if __name__ == "__main__":
    _main()
