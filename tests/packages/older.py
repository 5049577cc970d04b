"""Makes a package of an older version from a package, for tests of upgrades.

No version has been released, so this one has the same program. What an upgrade has to deal with differs: the version,
a file that the newer version does not have, and the default configuration.
"""

import re
import subprocess
from pathlib import Path

from knft import __version__

VERSION = "0.0.9"
REMOVED_FILE = "usr/share/doc/knft/removed-by-0.1.0"
OLD_LINE = "# The default configuration of 0.0.9."


def make_older(package: Path, folder: Path) -> Path:
    """Return the older package, written into ``folder``."""
    tree = folder / "older"
    _dpkg_deb("--raw-extract", str(package), str(tree))
    control = tree / "DEBIAN/control"
    (version,) = re.findall(r"^Version: (.+)$", control.read_text(), re.MULTILINE)
    upstream = version.partition("-")[0]
    older = version.replace(upstream, VERSION, 1)
    _replace(control, f"Version: {version}\n", f"Version: {older}\n")
    (source,) = tree.glob("usr/lib/**/knft/__init__.py")
    _replace(source, f'"{__version__}"', f'"{VERSION}"')
    configuration = tree / "etc/knft/config.yaml"
    configuration.write_text(f"{OLD_LINE}\n{configuration.read_text()}")
    (tree / REMOVED_FILE).touch()
    (tree / "DEBIAN/md5sums").unlink()
    path = folder / package.name.replace(version, older)
    _dpkg_deb("--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(path))
    return path


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, path
    path.write_text(text.replace(old, new))


def _dpkg_deb(*arguments: str) -> None:
    subprocess.run(["dpkg-deb", *arguments], check=True, capture_output=True)  # noqa: S607
