"""A description of the machine of a run."""

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path


def describe() -> dict[str, str]:
    """Return hardware, software and load of the machine."""
    model = _field_of_file("model name", "/proc/cpuinfo")
    memory = int(_field_of_file("MemTotal", "/proc/meminfo").split()[0]) / 2**20
    return {
        "machine": f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB",
        "kernel": platform.release(),
        "software": ", ".join((f"Python {platform.python_version()}", *_version_of("nft"), *_version_of("iptables"))),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "load at the start": _load(),
    }


def load_at_end() -> dict[str, str]:
    """Return the load at the end of the run."""
    return {"load at the end": _load()}


def _load() -> str:
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def _field_of_file(name: str, path: str) -> str:
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for found, _, value in lines if found.strip() == name), "0 unknown")


def _version_of(program: str) -> list[str]:
    """Return a program's version; an empty list if it is not installed."""
    if shutil.which(program) is None:
        return []
    return [subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()]
