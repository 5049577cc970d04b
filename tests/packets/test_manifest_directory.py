"""``knft run`` follows its directory of manifests, and leaves its rules in place when it ends."""

import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.cluster_ips import cluster_ip_octets, wait_for_cluster_ips
from tests.support.knft_command import KNFT, NODE_FLAG, knft
from tests.support.lab.namespace import Namespace
from tests.support.log_lines import messages
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.kernel


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
    created = Namespace.create("follow")
    yield created
    created.close()


@contextmanager
def _following(namespace: Namespace, folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    arguments = ["run", "--manifests", str(folder), *NODE_FLAG, "--min-sync-period", "0", "-v2", *flags]
    process = namespace.popen([*KNFT, *arguments], stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _add_file(folder: Path) -> None:
    _write(folder / "b.yaml", _service("b", 2))


def _change_file(folder: Path) -> None:
    _write(folder / "a.yaml", _service("a", 3))


def _remove_file(folder: Path) -> None:
    (folder / "a.yaml").unlink()


def _rename_over(folder: Path) -> None:
    _write(folder / "a.tmp", _service("a", 4))
    (folder / "a.tmp").rename(folder / "a.yaml")


def _rename_away(folder: Path) -> None:
    (folder / "a.yaml").rename(folder / "a.yaml.bak")


def _break_file(folder: Path) -> None:
    (folder / "a.yaml").write_text("kind: Service\n  broken: [")
    _write(folder / "b.yaml", _service("b", 2))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(_add_file, {"1", "2", "9"}, id="new file"),
        pytest.param(_change_file, {"3", "9"}, id="changed file"),
        pytest.param(_remove_file, {"9"}, id="removed file"),
        pytest.param(_rename_over, {"4", "9"}, id="file renamed over another"),
        pytest.param(_rename_away, {"9"}, id="file renamed to another extension"),
        pytest.param(_break_file, {"1", "2", "9"}, id="invalid file keeps its last valid objects"),
    ],
)
def test_changed_added_and_deleted_manifests_are_served(
    namespace: Namespace, tmp_path: Path, change: Callable[[Path], None], expected: set[str]
) -> None:
    _write(tmp_path / "a.yaml", _service("a", 1))
    _write(tmp_path / "other.yaml", _service("other", 9))
    with _following(namespace, tmp_path):
        wait_for_cluster_ips(namespace, {"1", "9"})
        change(tmp_path)
        wait_for_cluster_ips(namespace, expected)


def _swap(link: Path, target: Path) -> None:
    """Replace a symlink atomically, as the kubelet does."""
    new = link.with_name(link.name + "_tmp")
    new.symlink_to(target.name)
    new.rename(link)


def _config_map(folder: Path, version: str, number: int) -> None:
    (folder / version).mkdir()
    _write(folder / version / "a.yaml", _service("a", number))


def test_config_map_volume_is_watched(namespace: Namespace, tmp_path: Path) -> None:
    """Its files are symlinks into ``..data``, a symlink to a directory that is replaced."""
    _config_map(tmp_path, "..2026_01", 1)
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    with _following(namespace, tmp_path):
        wait_for_cluster_ips(namespace, {"1"})
        for number in (2, 3):
            _config_map(tmp_path, f"..2026_0{number}", number)
            _swap(tmp_path / "..data", tmp_path / f"..2026_0{number}")
            wait_for_cluster_ips(namespace, {str(number)})


def test_symlinked_directory_is_watched(namespace: Namespace, tmp_path: Path) -> None:
    """The directory itself is a symlink, which is replaced twice; later a file is added."""
    for number in (1, 2, 3):
        _config_map(tmp_path, f"v{number}", number)
    (tmp_path / "current").symlink_to("v1")
    with _following(namespace, tmp_path / "current"):
        wait_for_cluster_ips(namespace, {"1"})
        for number in (2, 3):
            _swap(tmp_path / "current", tmp_path / f"v{number}")
            wait_for_cluster_ips(namespace, {str(number)})
        _write(tmp_path / "v3" / "b.yaml", _service("b", 9))
        wait_for_cluster_ips(namespace, {"3", "9"})


def test_rules_are_kept_when_the_directory_is_removed(namespace: Namespace, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    _write(folder / "a.yaml", _service("a", 1))
    with _following(namespace, folder) as process:
        wait_for_cluster_ips(namespace, {"1"})
        folder.rename(tmp_path / "away")
        line = _line(process, "keeping the last valid objects")
        assert str(folder) in line
        assert cluster_ip_octets(namespace) == {"1"}
        folder.mkdir()
        _write(folder / "a.yaml", _service("a", 2))
        wait_for_cluster_ips(namespace, {"2"})


def _contents_after(namespace: Namespace, folder: Path, *, status: int) -> tuple[set[str], str]:
    """Run ``knft run --once``, and return the cluster IPs in the table and the log."""
    done = knft(namespace, "run", "--once", "--manifests", str(folder), *NODE_FLAG, check=False)
    assert done.returncode == status, done.stderr
    return cluster_ip_octets(namespace), done.stderr


def test_once_fails_and_removes_nothing_if_a_file_is_unreadable(namespace: Namespace, tmp_path: Path) -> None:
    _write(tmp_path / "a.yaml", _service("a", 1))
    _write(tmp_path / "b.yaml", _service("b", 2))
    assert _contents_after(namespace, tmp_path, status=0)[0] == {"1", "2"}
    (tmp_path / "a.yaml").write_text("kind: Service\n  broken: [")
    _write(tmp_path / "b.yaml", _service("c", 3))
    served, log = _contents_after(namespace, tmp_path, status=2)
    assert served == {"1", "2", "3"}
    assert f"{tmp_path}/a.yaml: not YAML" in log.splitlines()[-1]
    assert "knft removed no rules" in log.splitlines()[-1]
    (tmp_path / "a.yaml").unlink()
    assert _contents_after(namespace, tmp_path, status=0)[0] == {"3"}


def test_once_keeps_the_rules_of_an_invalid_object_and_removes_others(namespace: Namespace, tmp_path: Path) -> None:
    for number, name in enumerate("abc", start=1):
        _write(tmp_path / f"{name}.yaml", _service(name, number))
    assert _contents_after(namespace, tmp_path, status=0)[0] == {"1", "2", "3"}
    invalid = _service("a", 1)
    invalid["spec"]["ports"] = [{"port": 70000}]
    _write(tmp_path / "a.yaml", invalid)
    (tmp_path / "b.yaml").unlink()
    served, log = _contents_after(namespace, tmp_path, status=2)
    assert served == {"1", "3"}
    assert f"{tmp_path}/a.yaml: invalid objects were skipped (1)" in log.splitlines()[-1]
    assert "knft kept the old rules of Service default/a" in log.splitlines()[-1]
    _write(tmp_path / "a.yaml", _service("a", 4))
    assert _contents_after(namespace, tmp_path, status=0)[0] == {"3", "4"}


def test_once_removes_the_last_service_only_for_an_empty_list(namespace: Namespace, tmp_path: Path) -> None:
    _write(tmp_path / "a.yaml", _service("a", 1))
    _contents_after(namespace, tmp_path, status=0)
    (tmp_path / "a.yaml").unlink()
    served, log = _contents_after(namespace, tmp_path, status=0)
    assert served == {"1"}
    reason = f"{tmp_path}: no file contains a Service or an empty List; until this is repaired, knft removes no rules"
    assert reason in messages(log, "W")
    _write(tmp_path / "none.yaml", {"apiVersion": "v1", "kind": "List", "items": []})
    assert _contents_after(namespace, tmp_path, status=0)[0] == set()


def test_once_waits_for_a_file_that_is_being_written(namespace: Namespace, tmp_path: Path) -> None:
    """When it is closed, it is complete, though it has no newline at its end."""
    with (tmp_path / "a.yaml").open("w") as file:
        file.write(yaml.safe_dump(_service("a", 1)))
        file.flush()
        command = [*KNFT, "run", "--once", "--manifests", str(tmp_path), *NODE_FLAG]
        process = namespace.popen(command)
        wait_until(lambda: _has_worker_process(process.pid), "knft does not start")
        assert cluster_ip_octets(namespace) == set()
        file.write("---\n" + yaml.safe_dump(_service("b", 2)).removesuffix("\n"))
    assert process.wait(TIMEOUT) == 0
    assert cluster_ip_octets(namespace) == {"1", "2"}


def _has_worker_process(pid: int) -> bool:
    """Whether knft has read the directory: it starts the worker process of libnftables afterwards."""
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_rules_stay_until_every_file_was_read(namespace: Namespace, tmp_path: Path) -> None:
    """knft starts with a broken file; it serves the others, and removes what is gone when the file is repaired."""
    for name, number in (("a", 1), ("b", 2), ("c", 3)):
        _write(tmp_path / f"{name}.yaml", _service(name, number))
    _contents_after(namespace, tmp_path, status=0)
    (tmp_path / "a.yaml").write_text("")
    (tmp_path / "b.yaml").unlink()
    _write(tmp_path / "c.yaml", _service("c", 4))
    with _following(namespace, tmp_path) as process:
        assert f"{tmp_path}/a.yaml: the file is empty" in _line(process, "knft removes no rules")
        wait_for_cluster_ips(namespace, {"1", "2", "3", "4"})
        _write(tmp_path / "a.yaml", _service("a", 1))
        wait_for_cluster_ips(namespace, {"1", "4"})


def test_metrics_count_files_and_held_removals(namespace: Namespace, tmp_path: Path) -> None:
    from tests.support.lab.links import netlink

    with netlink(namespace) as link:
        link.up("lo")
    for name, number in (("a", 1), ("b", 2)):
        _write(tmp_path / f"{name}.yaml", _service(name, number))
    address = "127.0.0.1:10249"
    with _following(namespace, tmp_path, "--metrics-bind-address", address), namespace.entered():
        wait_until(lambda: _values(address) == {"read": 2.0, "held": 0.0}, "the files are not counted")
        for name in ("a", "b"):
            (tmp_path / f"{name}.yaml").unlink()
        wait_until(lambda: _values(address) == {"missing": 2.0, "held": 1.0}, "the removal is not held")


def _values(address: str) -> dict[str, float]:
    """Return the number of files by state, without zeros, and the metric of held removals."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT) as response:
            text = response.read().decode()
    except OSError:
        return {}
    metrics = {metric.name: metric.samples for metric in text_string_to_metric_families(text)}
    files = {sample.labels["state"]: sample.value for sample in metrics["knft_manifest_files"] if sample.value}
    return files | {"held": metrics["knft_removals_held"][0].value}


def _line(process: subprocess.Popen[str], words: str) -> str:
    """Return the first log line with these words; knft is killed if there is none in time."""
    assert process.stderr is not None
    limit = threading.Timer(TIMEOUT, process.kill)
    limit.start()
    try:
        return next((line for line in process.stderr if words in line), "")
    finally:
        limit.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_knft_and_leaves_the_rules(namespace: Namespace, tmp_path: Path, number: signal.Signals) -> None:
    _write(tmp_path / "a.yaml", _service("a", 1))
    with _following(namespace, tmp_path) as process:
        wait_for_cluster_ips(namespace, {"1"})
        os.kill(process.pid, number)
        assert process.wait(TIMEOUT) == 0
    assert cluster_ip_octets(namespace) == {"1"}


def test_node_port_addresses_follow_the_interfaces(namespace: Namespace, tmp_path: Path) -> None:
    """--nodeport-addresses selects addresses that are added later too."""
    from tests.support.lab import plan
    from tests.support.lab.links import netlink

    flags = ["--nodeport-addresses", "192.0.2.0/24"]
    command = [*KNFT, "run", "--manifests", str(tmp_path), *NODE_FLAG, "--min-sync-period", "0", *flags]
    process = namespace.popen(command, stderr=subprocess.DEVNULL)
    try:
        # The address must be added after knft has read the addresses for the first time.
        wait_until(lambda: "nodeport-ips" in _nodeport_ips(namespace), "no set of NodePort addresses")
        assert plan.NODE.lan.ipv4 not in _nodeport_ips(namespace)
        with netlink(namespace) as link:
            link.up("lo")
            link.add_loopback_addresses(plan.NODE.lan)
        wait_until(lambda: plan.NODE.lan.ipv4 in _nodeport_ips(namespace), "the address is not added")
        with netlink(namespace) as link:
            link.remove_loopback_addresses(plan.NODE.lan)
        wait_until(lambda: plan.NODE.lan.ipv4 not in _nodeport_ips(namespace), "the address is not removed")
    finally:
        process.kill()
        process.communicate()


def test_knft_exits_if_it_cannot_watch_the_directory(namespace: Namespace, tmp_path: Path) -> None:
    """knft exits with an error, because a proxy without watches must not report healthy. The rules stay."""
    manifests, broken = tmp_path / "manifests", tmp_path / "broken"
    manifests.mkdir()
    broken.mkdir()
    _write(manifests / "a.yaml", _service("a", 1))
    (broken / "watchfiles.py").write_text("raise ImportError('broken for the test')")
    command = [*KNFT, "run", "--manifests", str(manifests), *NODE_FLAG]
    process = namespace.popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(broken)})
    try:
        _, stderr = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "ImportError: broken for the test" in stderr


def _nodeport_ips(namespace: Namespace) -> str:
    return namespace.run(["nft", "list", "set", "ip", "knft", "nodeport-ips"], check=False).stdout
