"""Records how a copy of knft was installed, for ``knft version``: ``python -m deploy.installer FOLDER deb``.

FOLDER is the site-packages folder in which pip installed knft's wheel. The name is written to the file INSTALLER of
the distribution, where the Python packaging standard has the installer's name (docs/operations/index.md#version).
"""

import argparse
import base64
import csv
import hashlib
import io
from pathlib import Path

NAMES = ("image", "deb", "rpm")


def record_installer(site_packages: Path, name: str) -> None:
    """Write one of NAMES as the installer of knft, and its digest into the list of files, if the distribution has one.

    Raises ValueError if the folder does not have exactly one distribution of knft.
    """
    folders = list(site_packages.glob("knft-*.dist-info"))
    if len(folders) != 1:
        msg = f"{site_packages} has {len(folders)} folders knft-*.dist-info, expected 1: install knft's wheel there"
        raise ValueError(msg)
    content = f"{name}\n".encode()
    installer, record = folders[0] / "INSTALLER", folders[0] / "RECORD"
    installer.write_bytes(content)
    if record.exists():
        record.write_text(_with_digest(record.read_text(), f"{folders[0].name}/INSTALLER", content))


def _with_digest(record: str, path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    others = [row for row in csv.reader(record.splitlines()) if row[0] != path]
    output = io.StringIO()
    rows = sorted([*others, [path, f"sha256={digest}", str(len(content))]])
    csv.writer(output, lineterminator="\n").writerows(rows)
    return output.getvalue()


def main() -> None:
    """Record the installer that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m deploy.installer", description="Record how knft was installed.")
    parser.add_argument("folder", type=Path, help="site-packages folder that has knft")
    parser.add_argument("name", choices=NAMES)
    arguments = parser.parse_args()
    try:
        record_installer(arguments.folder, arguments.name)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
