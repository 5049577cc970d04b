"""Command line: builds images, or renews their locks."""

import argparse
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from deploy.image.build import build
from deploy.image.errors import ImageError
from deploy.image.resolve import write_build_lock, write_locks
from deploy.image.variant import ARCHITECTURES, DEFAULT, VARIANTS, native_architecture

_ROOT = Path(__file__).parents[2]


def main() -> None:
    """Build the image that the arguments name."""
    arguments = _parser().parse_args()
    try:
        _run(arguments)
    except ImageError as error:
        sys.exit(f"image: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.image", description="Build the container image of knft as an OCI archive."
    )
    parser.add_argument("--variant", choices=VARIANTS, default=DEFAULT, help=f"default: {DEFAULT}")
    parser.add_argument("--architecture", choices=ARCHITECTURES, help="default: this machine's")
    parser.add_argument("--output", type=Path, default=_ROOT / "dist", help="folder for the archive; default: dist")
    parser.add_argument("--lock", action="store_true", help="renew the locks of all images instead")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    if arguments.lock:
        write_build_lock()
        for variant in VARIANTS.values():
            for architecture in ARCHITECTURES.values():
                print(f"image: locking {variant.name}, {architecture.name}", flush=True)
                write_locks(variant, architecture, datetime.now(UTC))
        return
    architecture = ARCHITECTURES[arguments.architecture] if arguments.architecture else native_architecture()
    archive = build(_ROOT, VARIANTS[arguments.variant], architecture, _source_date_epoch(), arguments.output)
    print(f"image: {archive.path} ({archive.bytes / 1e6:.1f} MB), digest {archive.digest}")


def _source_date_epoch() -> int:
    """Return the time that the image's files get: of the environment, or of the newest commit; in seconds."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", str(_ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = "set SOURCE_DATE_EPOCH: the time of the newest commit is unknown"
        raise ImageError(msg)
    return int(done.stdout)


if __name__ == "__main__":
    main()
