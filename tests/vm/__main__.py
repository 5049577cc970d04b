"""``python -m tests.vm [ARGUMENTS FOR PYTEST]``: boot, test, and judge."""

import shlex
import sys
import time
from pathlib import Path

from . import initramfs, kernel, machine, verdict
from .errors import VmError

TESTS = ("tests/packets/test_scenarios.py",)
"""What runs in the guest, all of it in one boot."""
TIME_LIMIT = 900.0
"""Seconds after which a guest that does not end is stopped."""
CHECKOUT = Path(__file__).parent.parent.parent


def _settings(modules: Path, arguments: list[str]) -> str:
    command = shlex.join([sys.executable, "-m", "pytest", *(arguments or TESTS)])
    values = {"CHECKOUT": str(CHECKOUT), "MODULES": str(modules), "COMMAND": command}
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _main() -> None:
    started = time.monotonic()
    try:
        chosen = kernel.fetch()
        print(f"test-vm: booting {chosen.release}", flush=True)
        settings = _settings(chosen.all_modules, sys.argv[1:])
        report = machine.run(chosen, initramfs.build(chosen, settings), TIME_LIMIT)
        result = verdict.parse(report)
    except VmError as error:
        sys.exit(f"test-vm: {error}")
    elapsed = time.monotonic() - started
    print(f"test-vm: {result.tests} tests on kernel {result.release}, {elapsed:.0f} s in all", flush=True)
    sys.exit("\n".join(f"test-vm: {complaint}" for complaint in result.complaints()) or 0)


if __name__ == "__main__":
    _main()
