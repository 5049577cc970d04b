"""The tables that the last released version of knft makes for a small cluster: nft loads them, and knft adopts them.

``python -m tests.support.packets.released_layout CHECKOUT`` writes them again after a release; CHECKOUT is a source
tree of the released version. Tests of upgrades start from these files, so that they need no old source.
"""

import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.knft_command import write_manifests
from tests.support.lab.namespace import Namespace
from tests.support.packets.manifest_knft import ManifestKnft
from tests.support.packets.many_clients import HTTP, STICKY
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.scenario import Scenario

RELEASED = "fbda99d"
"""The commit of the last released version."""

FOLDER = Path(__file__).parents[2] / "packets" / "released_layout"
FAMILIES = ("ip", "ip6")

PODS = tuple(f"local-{number}" for number in range(1, 5)) + tuple(f"remote-{number}" for number in range(1, 9))
_EXTERNAL_IPS = [f"$external.{number}" for number in range(1, 27)]
CLUSTER = Scenario(
    "",
    [
        service("sticky", 50, *tcp_and_udp("http", 80), **STICKY),
        endpoints("sticky", *PODS[:6], http=HTTP),
        service("plain", 51, *tcp_and_udp("http", 80, 30080)),
        endpoints("plain", *PODS[:6], http=HTTP),
        service("wide", 52, *tcp_and_udp("http", 80), externalIPs=_EXTERNAL_IPS),
        endpoints("wide", *PODS, http=HTTP),
    ],
    (),
)
"""Sticky Services, and one with so many frontends and endpoints that a later version stores it in another way."""


def released_program(checkout: Path) -> tuple[str, ...]:
    """Return the command of the version in a source tree, for all working directories."""
    return ("env", "PYTHONSAFEPATH=1", f"PYTHONPATH={checkout}:{checkout / 'compat'}", sys.executable, "-m", "knft")


def unpack_released(folder: Path) -> Path:
    """Return a directory with the source of the released version, the output of ``git archive fbda99d knft``."""
    with tarfile.open(FOLDER / "knft.tar.xz") as archive:
        # Not extractall(): its filter does not exist before Python 3.11.4, and 3.12 and 3.13 warn without it.
        for member in filter(tarfile.TarInfo.isfile, archive):
            content = archive.extractfile(member)
            assert content is not None
            (folder / member.name).parent.mkdir(parents=True, exist_ok=True)
            (folder / member.name).write_bytes(content.read())
    return folder


def released_table(family: str) -> str:
    """Return the table of a family, as text that nft loads."""
    return (FOLDER / f"{family}.nft").read_text()


def _main(checkout: Path) -> None:
    FOLDER.mkdir(exist_ok=True)
    namespace = Namespace.create("released")
    with tempfile.TemporaryDirectory() as folder:
        write_manifests(Path(folder), CLUSTER.manifests())
        process = ManifestKnft(namespace, Path(folder), Path(folder, "log"), released_program(checkout.absolute()))
        process.wait_for_full_syncs()
        process.kill()
    for family in FAMILIES:
        listed = namespace.run(["nft", "-s", "list", "table", family, "knft"]).stdout
        (FOLDER / f"{family}.nft").write_text(_without_unused_pools(listed))
    namespace.close()


def _without_unused_pools(listed: str) -> str:
    """Return a table without the pool chains that nothing leads to: there are hundreds."""
    blocks = re.split(r"(?m)^(?=\tchain )", listed)
    used = set(re.findall(r"goto ([\w-]+)", listed))
    return "".join(_kept(blocks, used))


def _kept(blocks: list[str], used: set[str]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        name = re.match(r"\tchain (\S+)", block)
        if name is None or "pool-" not in name[1] or name[1] in used:
            yield block
        elif number == len(blocks) - 1:
            yield "}\n"


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
