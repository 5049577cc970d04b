"""``knft run`` follows its directory, whatever is done to it, and leaves the rules in place when it is told to stop."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.knft_command import KNFT, NODE_FLAG
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
HANG = 30.0
"""Seconds after which a test gives up; nothing is measured."""


def _service(name: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": f"10.96.0.{number}", "ports": [{"port": 80}]},
    }


def _write(path: Path, *objects: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump_all(objects))


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace.create("follow")
    yield made
    made.close()


@contextmanager
def _following(namespace: Namespace, folder: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = ["run", "--manifests", str(folder), *NODE_FLAG, "--min-sync-period", "0", "-v2"]
    process = namespace.popen([*KNFT, *arguments], stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _cluster_ips(namespace: Namespace) -> set[str]:
    """Return the last numbers of the cluster IPs in force."""
    done = namespace.run(["nft", "-j", "list", "set", "ip", "knft", "cluster-ips"], check=False)
    if done.returncode != 0:
        return set()
    listed = yaml.safe_load(done.stdout)["nftables"][1]["set"].get("elem", [])
    return {item.rpartition(".")[2] for item in listed}


def _until(namespace: Namespace, expected: set[str]) -> None:
    deadline = time.monotonic() + HANG
    while (found := _cluster_ips(namespace)) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    assert expected == found


def _make(folder: Path) -> None:
    _write(folder / "b.yaml", _service("b", 2))


def _change(folder: Path) -> None:
    _write(folder / "a.yaml", _service("a", 3))


def _remove(folder: Path) -> None:
    (folder / "a.yaml").unlink()


def _rename_over(folder: Path) -> None:
    _write(folder / "a.tmp", _service("a", 4))
    (folder / "a.tmp").rename(folder / "a.yaml")


def _rename_away(folder: Path) -> None:
    (folder / "a.yaml").rename(folder / "a.yaml.bak")


def _break(folder: Path) -> None:
    (folder / "a.yaml").write_text("kind: Service\n  broken: [")
    _write(folder / "b.yaml", _service("b", 2))


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        pytest.param(_make, {"1", "2"}, id="a file is made"),
        pytest.param(_change, {"3"}, id="a file is changed"),
        pytest.param(_remove, set(), id="a file is removed"),
        pytest.param(_rename_over, {"4"}, id="a file is renamed over another"),
        pytest.param(_rename_away, set(), id="a file is renamed to something that is no manifest"),
        pytest.param(_break, {"1", "2"}, id="a broken file keeps its last good objects, the others go on"),
    ],
)
def test_the_directory_is_followed(
    namespace: Namespace, tmp_path: Path, act: Callable[[Path], None], expected: set[str]
) -> None:
    _write(tmp_path / "a.yaml", _service("a", 1))
    with _following(namespace, tmp_path):
        _until(namespace, {"1"})
        act(tmp_path)
        _until(namespace, expected)


def _swap(link: Path, target: Path) -> None:
    """Replace a symlink atomically, as the kubelet does."""
    new = link.with_name(link.name + "_tmp")
    new.symlink_to(target.name)
    new.rename(link)


def _config_map(folder: Path, version: str, number: int) -> None:
    (folder / version).mkdir()
    _write(folder / version / "a.yaml", _service("a", number))


def test_a_config_map_volume_is_followed(namespace: Namespace, tmp_path: Path) -> None:
    """Its files are links into ``..data``, which is a link to a directory that is swapped."""
    _config_map(tmp_path, "..2026_01", 1)
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    with _following(namespace, tmp_path):
        _until(namespace, {"1"})
        for number in (2, 3):
            _config_map(tmp_path, f"..2026_0{number}", number)
            _swap(tmp_path / "..data", tmp_path / f"..2026_0{number}")
            _until(namespace, {str(number)})


def test_a_symlinked_directory_is_followed(namespace: Namespace, tmp_path: Path) -> None:
    """The directory itself is a link that is swapped, twice, and files are made in the new one."""
    for number in (1, 2, 3):
        _config_map(tmp_path, f"v{number}", number)
    (tmp_path / "current").symlink_to("v1")
    with _following(namespace, tmp_path / "current"):
        _until(namespace, {"1"})
        for number in (2, 3):
            _swap(tmp_path / "current", tmp_path / f"v{number}")
            _until(namespace, {str(number)})
        _write(tmp_path / "v3" / "b.yaml", _service("b", 9))
        _until(namespace, {"3", "9"})


def test_a_directory_that_disappears_keeps_the_rules(namespace: Namespace, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    _write(folder / "a.yaml", _service("a", 1))
    with _following(namespace, folder) as process:
        _until(namespace, {"1"})
        folder.rename(tmp_path / "away")
        line = _line(process, "last good state")
        assert str(folder) in line
        assert _cluster_ips(namespace) == {"1"}
        folder.mkdir()
        _write(folder / "a.yaml", _service("a", 2))
        _until(namespace, {"2"})


def _line(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    return next(line for line in process.stderr if words in line)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_the_rules(namespace: Namespace, tmp_path: Path, number: signal.Signals) -> None:
    _write(tmp_path / "a.yaml", _service("a", 1))
    with _following(namespace, tmp_path) as process:
        _until(namespace, {"1"})
        os.kill(process.pid, number)
        assert process.wait(HANG) == 0
    assert _cluster_ips(namespace) == {"1"}


def test_addresses_that_come_and_go_are_noticed(namespace: Namespace, tmp_path: Path) -> None:
    """NodePort CIDRs choose from the machine's addresses, also from those that come later."""
    from tests.support.lab import plan
    from tests.support.lab.links import netlink

    flags = ["--nodeport-addresses", "192.0.2.0/24"]
    command = [*KNFT, "run", "--manifests", str(tmp_path), *NODE_FLAG, "--min-sync-period", "0", *flags]
    process = namespace.popen(command, stderr=subprocess.DEVNULL)
    try:
        # An address that is there before the process looks for the first time is not one that comes.
        _wait(lambda: "nodeport-ips" in _nodeport_ips(namespace))
        assert plan.NODE.lan.ipv4 not in _nodeport_ips(namespace)
        with netlink(namespace) as link:
            link.up("lo")
            link.add_loopback_addresses(plan.NODE.lan)
        _wait(lambda: plan.NODE.lan.ipv4 in _nodeport_ips(namespace))
        with netlink(namespace) as link:
            link.remove_loopback_addresses(plan.NODE.lan)
        _wait(lambda: plan.NODE.lan.ipv4 not in _nodeport_ips(namespace))
    finally:
        process.kill()
        process.communicate()


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert held


def test_a_daemon_that_cannot_follow_ends(namespace: Namespace, tmp_path: Path) -> None:
    """Loudly: a proxy that no longer follows its cluster must not look healthy. The rules stay."""
    manifests, broken = tmp_path / "manifests", tmp_path / "broken"
    manifests.mkdir()
    broken.mkdir()
    _write(manifests / "a.yaml", _service("a", 1))
    (broken / "watchfiles.py").write_text("raise ImportError('broken for the test')")
    command = [*KNFT, "run", "--manifests", str(manifests), *NODE_FLAG]
    process = namespace.popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(broken)})
    try:
        _, said = process.communicate(timeout=HANG)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "ImportError: broken for the test" in said


def _nodeport_ips(namespace: Namespace) -> str:
    return namespace.run(["nft", "list", "set", "ip", "knft", "nodeport-ips"], check=False).stdout
