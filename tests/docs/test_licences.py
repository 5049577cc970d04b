"""The program of the worker process, which loads a library under GPL-2.0-only, has no code under Apache-2.0 alone."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LICENCE = "Apache-2.0 OR GPL-2.0-only"
COMPATIBLE = {"nftables"}
"""Libraries that the program may import: the binding's licence is GPL-2.0-only."""

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


def test_copyright_file_of_the_debian_packages_names_the_files_with_two_licences() -> None:
    paragraphs = (ROOT / "deploy/packages/debian/common/copyright").read_text().split("\n\n")
    (listed,) = [each for each in paragraphs if re.search(r"^License: Apache-2\.0 or GPL-2$", each, re.MULTILINE)]
    names = listed.removeprefix("Files:").partition("\nCopyright:")[0].split()
    packaged = [path for folder in ("knft", "compat", "deploy") for path in (ROOT / folder).rglob("*.py")]
    assert names == sorted(path.relative_to(ROOT).as_posix() for path in packaged if _has_header(path))


def _has_header(path: Path) -> bool:
    return path.read_text().partition("\n")[0].endswith(f"-License-Identifier: {LICENCE}")


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
