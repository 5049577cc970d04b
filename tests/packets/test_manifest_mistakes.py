"""Manifests are half-written, cut and unmounted while clients connect: every connection is answered."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.families import VERSIONS, address
from tests.support.knft_command import KNFT, knft
from tests.support.lab.clients import NONE, ClientProcesses, ClientTarget
from tests.support.lab.links import flush_conntrack
from tests.support.lab.responder_process import ResponderProcess
from tests.support.lab.topology import Lab
from tests.support.packets.manifest_knft import ManifestKnft
from tests.support.packets.programmed import endpoints, service, tcp_and_udp
from tests.support.scenario import Scenario

pytestmark = pytest.mark.kernel

PORT = 8080
STICKY = {"sessionAffinity": "ClientIP"}
ENDLESS = 10**8


def _manifests(*objects: dict[str, Any]) -> str:
    """Return the objects in both families, and the Node, as YAML; each line of it is JSON."""
    return "".join(f"---\n{json.dumps(item)}\n" for item in Scenario("", list(objects), ()).manifests())


SERVICES = _manifests(
    service("web", 1, *tcp_and_udp("http", 80, 30081)), service("sticky", 2, *tcp_and_udp("http", 80), **STICKY)
)
SLICES = _manifests(
    endpoints("web", "local-1", "remote-1", http=PORT), endpoints("sticky", "local-2", "remote-2", http=PORT)
)


class _Mounted(ManifestKnft):
    """``knft run`` with a directory of manifests that is mounted only in its own mount namespace."""

    def __init__(self, lab: Lab, source: Path, mount_point: Path, log: Path) -> None:
        mount = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
        unshared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", str(source)]
        self._mount_point = mount_point
        super().__init__(lab.host("node").namespace, mount_point, log, (*unshared, str(mount_point), *KNFT))

    def unmount(self) -> None:
        mounts = f"--mount=/proc/{self._process.pid}/ns/mnt"
        self._namespace.run(["nsenter", mounts, "umount", str(self._mount_point)])


class _Manifests:
    """The directory, and the process that serves it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        self._mount_point = folder / "mount-point"
        self._mount_point.mkdir()
        self.source = folder / "manifests"
        self.source.mkdir()
        self._number = 100
        self.write("services", SERVICES)
        self.write("slices", SLICES)
        self.start()

    def write(self, name: str, text: str) -> None:
        """Write a file atomically."""
        (self.source / "new").write_text(text)
        (self.source / "new").rename(self.source / f"{name}.yaml")

    def start(self) -> Sequence[str]:
        """Start knft, and return the log lines of its first syncs."""
        self.knft = _Mounted(self._lab, self.source, self._mount_point, self._folder / "log")
        return self.knft.wait_for_full_syncs()

    def wait_for_scan(self) -> None:
        """Return when knft has read the directory and synced: another Service is in force."""
        self._number += 1
        other = _manifests(service("other", self._number, *tcp_and_udp("http", 80)))
        self.knft.sync_after(lambda: self.write("other", other))


def _pause_while_writing(manifests: _Manifests) -> None:
    """Write a file in place with pauses, and each time a part that is valid."""
    documents = SLICES.splitlines(keepends=True)
    with (manifests.source / "slices.yaml").open("w") as file:
        for line in documents:
            file.write(line)
            file.flush()
            if line in (documents[1], documents[-2]):
                manifests.wait_for_scan()
    manifests.wait_for_scan()


def _restart_with_cut_files(manifests: _Manifests) -> None:
    """Each file in turn, cut in the middle, and once all of them."""
    contents = {"services": SERVICES, "slices": SLICES}
    for cut in (["services"], ["slices"], ["services", "slices"]):
        manifests.knft.kill()
        for name in cut:
            manifests.write(name, contents[name][: len(contents[name]) // 2])
        syncs = manifests.start()
        assert all(", 0 removed, " in line for line in syncs), syncs
        for name in cut:
            manifests.write(name, contents[name])
        manifests.knft.wait_for_log("all manifests were read")
        manifests.wait_for_scan()


def test_mistakes_with_manifests_cost_no_connection(lab: Lab, tmp_path: Path) -> None:
    node, client = lab.host("node").namespace, lab.host("outside")
    flush_conntrack(node)
    targets = [
        ClientTarget(address(name, version), port, "tcp")
        for version in VERSIONS
        for name, port in (("cluster.1", 80), ("cluster.2", 80), ("node", 30081))
    ]
    manifests = _Manifests(lab, tmp_path)
    try:
        with (
            ResponderProcess(map(lab.host, ("local-1", "local-2", "remote-1", "remote-2")), [PORT]),
            ClientProcesses({client: targets}, tmp_path, ENDLESS, 1, pause=0.001) as clients,
        ):
            clients.wait_for_connections()
            _pause_while_writing(manifests)
            _restart_with_cut_files(manifests)
            manifests.knft.unmount()
            manifests.knft.wait_for_log("another directory was mounted or created at this path; keeping the objects")
            clients.wait_for_more()
        connections = list(clients.connections(client))
    finally:
        manifests.knft.kill()
        knft(node, "cleanup")
    assert {connection.error for connection in connections} == {NONE}
