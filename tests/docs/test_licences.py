"""The program of the worker process, which loads a library under GPL-2.0-only, has no code under Apache-2.0 alone."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LICENCE = "Apache-2.0 OR GPL-2.0-only"
COMPATIBLE = {"msgspec", "nftables", "typing_extensions"}
"""Libraries that the program may import: their licences are BSD-3-Clause, GPL-2.0-only and PSF-2.0."""

CODE = """
import sys
before = set(sys.modules)
import knft.kernel.worker, nftables
for name in sys.modules.keys() - before:
    package = name.partition(".")[0]
    if package not in sys.stdlib_module_names:
        print(name if package == "knft" else package)
"""


def test_program_of_the_worker_process_is_compatible_with_gpl() -> None:
    """Also, no other module has its licence."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(done.stdout.split())
    modules = {_module_name(path) for path in (ROOT / "knft").rglob("*.py") if _has_header(path)}
    assert imported - COMPATIBLE == modules


def _has_header(path: Path) -> bool:
    return path.read_text().partition("\n")[0].endswith(f"-License-Identifier: {LICENCE}")


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
