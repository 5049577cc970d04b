"""Compiles all Python modules, so that a start compiles nothing although the root file system is read-only.

The byte code has no time and no hash to check: nobody changes the source in an image.
"""

from pathlib import Path

from deploy.image.commands import run
from deploy.image.rootfs import SITE_PACKAGES
from deploy.image.variant import Architecture, Variant


def compile_modules(root: Path, variant: Variant, interpreter_root: Path, native: Architecture) -> None:
    """Compile the modules in ``root`` with the interpreter of ``interpreter_root``, which this machine can run.

    Byte code is the same for all architectures.
    """
    libraries = interpreter_root / native.libraries
    folders = (root / f"usr/lib/python{variant.python}", root / SITE_PACKAGES)
    run(
        [
            *(str(interpreter_root / native.loader), "--library-path", str(libraries)),
            *(str(interpreter_root / f"usr/bin/python{variant.python}"), "-S", "-s", "-B", "-m", "compileall"),
            *("-q", "-f", "-j", "1", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/"),
            *map(str, folders),
        ],
        # A fixed seed: the order of constants in byte code depends on hashes.
        {"PYTHONHOME": str(interpreter_root / "usr"), "PYTHONHASHSEED": "0"},
    )
