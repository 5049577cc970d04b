"""Makes a package of an older version from a package, for tests of upgrades.

No version has been released, so this one has the same program. What an upgrade has to deal with differs: the version,
a file that the newer version does not have, and the default configuration.
"""

import subprocess
from pathlib import Path

VERSION = "0.0.9"
REMOVED_FILE = "usr/share/doc/knft/removed-by-0.1.0"
OLD_LINE = "# The default configuration of 0.0.9."


def make_older(package: Path, folder: Path) -> Path:
    """Return the older package, written into ``folder``."""
    tree = folder / "older"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    lines = control.read_text().splitlines()
    (version,) = [line.removeprefix("Version: ") for line in lines if line.startswith("Version: ")]
    older = version.replace(version.partition("-")[0], VERSION, 1)
    control.write_text(
        "\n".join([*(f"Version: {older}" if line == f"Version: {version}" else line for line in lines), ""])
    )
    (source,) = tree.glob("usr/lib/**/knft/__init__.py")
    source.write_text(source.read_text().replace(f'"{version.partition("-")[0]}"', f'"{VERSION}"'))
    (tree / REMOVED_FILE).touch()
    configuration = tree / "etc/knft/config.yaml"
    configuration.write_text(f"{OLD_LINE}\n{configuration.read_text()}")
    (tree / "DEBIAN/md5sums").unlink()
    path = folder / package.name.replace(version, older)
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path
