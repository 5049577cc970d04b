"""What ``knft run --manifests`` logs at start, of each sync, and of problems that last: each once at begin and end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from knft import __version__
from tests.support.kernel_harness import service, slices
from tests.support.knft_command import KNFT, NODE_FLAG, write_manifests
from tests.support.lab.namespace import Namespace
from tests.support.log_lines import log_lines
from tests.support.logged_process import LoggedProcess

pytestmark = pytest.mark.kernel

EXTERNAL: dict[str, Any] = {"externalIPs": ["203.0.113.7"]}
UPDATED = "updated the rules of default/web:http"
RANGES = ("--node-ip=192.0.2.1", "--service-cidr=10.96.0.0/16", "--cluster-cidr=10.244.0.0/16")


class Run:
    """``knft run`` with a Service, and one further manifest that the test writes."""

    def __init__(self, namespace: Namespace, tmp_path: Path, *flags: str) -> None:
        self.folder = tmp_path / "manifests"
        self.folder.mkdir()
        write_manifests(self.folder, [service("web", 1, **EXTERNAL), *slices("web", [1])])
        self.other, self._new = self.folder / "other.yaml", tmp_path / "new"
        command = [*KNFT, "run", "--manifests", str(self.folder), *NODE_FLAG, *RANGES, *flags]
        self.process = LoggedProcess(namespace, command, tmp_path / "log")

    def write(self, document: dict[str, Any]) -> None:
        self._new.write_text(yaml.safe_dump(document))
        self._new.rename(self.other)

    def messages(self) -> list[tuple[str, str]]:
        return [(line.severity, line.message) for line in log_lines(self.process.log_text())]

    def wait_for(self, *expected: tuple[str, str]) -> None:
        self.process.wait_until(lambda: set(expected) <= set(self.messages()))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Return a function that starts one knft with flags."""
    namespace = Namespace.create("lasting")
    with ExitStack() as stack:
        stack.callback(namespace.close)

        def start(*flags: str) -> Run:
            found = Run(namespace, tmp_path, *flags)
            stack.callback(found.process.process.wait)
            stack.callback(found.process.process.kill)
            return found

        yield start


def test_default_level_names_the_node_and_each_problem_once(start: Callable[..., Run]) -> None:
    run = start()
    node = "node address 192.0.2.1; NodePorts at 192.0.2.1; cluster IPs in 10.96.0.0/16; pods in 10.244.0.0/16"
    run.wait_for(("I", f"IPv4: {node}"))
    source = f"manifests in {run.folder}"
    first = f"knft {__version__} starts for node 'node-1' with {source}, in mode nftables; log times are in UTC+00:00"
    assert run.messages()[0] == ("I", first)

    invalid = f"{run.other}: Service zoo: spec.clusterIPs[0]: it is '10.96.0.2', but spec.clusterIP is 'x'; skipped"
    run.write(service("zoo", 2, clusterIP="x"))
    run.wait_for(("W", invalid))
    lost = "Service port default/zoo:http does not get frontend 203.0.113.7 80/TCP, which Service port "
    contested = f"{lost}default/web:http owns"
    run.write(service("zoo", 2, **EXTERNAL))
    run.wait_for(("I", f"no longer: {invalid}"), ("W", f"IPv4: {contested}"))
    run.write(service("zoo", 3))
    run.wait_for(("I", f"IPv4: no longer: {contested}"))
    texts = [text for _, text in run.messages()]
    assert [texts.count(text) for text in (invalid, f"IPv4: {contested}")] == [1, 1]
    assert not any(UPDATED in text for text in texts)


def test_level_2_names_services_of_syncs(start: Callable[..., Run]) -> None:
    run = start("-v=2")
    run.wait_for(("I", f"IPv4: {UPDATED}"), ("I", f"IPv6: {UPDATED}"))
