"""Command line: builds images, or renews their locks."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from deploy.image.build import build
from deploy.image.errors import ImageError
from deploy.image.resolve import write_build_lock, write_locks
from deploy.image.variant import ARCHITECTURES, DEFAULT, VARIANTS, native_architecture
from deploy.source_date import SourceDateError, source_date_epoch
from deploy.source_revision import source_revision

_ROOT = Path(__file__).parents[2]


def main() -> None:
    """Build the image that the arguments name."""
    arguments = _parser().parse_args()
    try:
        _run(arguments)
    except (ImageError, SourceDateError) as error:
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
    seconds, revision = source_date_epoch(_ROOT), source_revision(_ROOT)
    archive = build(_ROOT, VARIANTS[arguments.variant], architecture, seconds, arguments.output, revision=revision)
    print(f"image: {archive.path} ({archive.bytes / 1e6:.1f} MB), digest {archive.digest}")


if __name__ == "__main__":
    main()
