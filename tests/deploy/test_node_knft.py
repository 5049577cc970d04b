"""deploy/kustomize/node-knft.sh, and node-command.sh, which it runs, with a kubectl that runs the command here."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.traced_cluster import write_manifests
from tests.support.waiting import TIMEOUT, wait_until

FOLDER = Path(__file__).parent.parent.parent / "deploy/kustomize"
CONFIG = "/var/lib/kube-proxy/config.conf"
KUBECTL = """
case "$*" in
    *"get configmap kube-proxy --ignore-not-found"*) cat "$FAKE/configmap" ;;
    *"get nodes,services,endpointslices,servicecidrs --all-namespaces --output=yaml") cat "$FAKE/objects.yaml" ;;
    *"get nodes --selector=kubernetes.io/os=linux"*) cat "$FAKE/nodes" ;;
    "get node node-9 "*) echo 'Error from server (NotFound): nodes "node-9" not found' >&2; exit 1 ;;
    "get node node-"*) ;;
    *" delete pod knft-command-"*) echo "$*" >>"$FAKE/deleted" ;;
    *" run knft-command-"*)
        while [ "$1" != -- ]; do
            shift
        done
        shift
        echo "$@" >>"$FAKE/commands"
        "$@" ;;
    *" get pod knft-command-"*) cat "$FAKE/status" ;;
    *" logs knft-command-"*) cat "$FAKE/logs" ;;
    *) echo "unexpected: kubectl $*" >&2; exit 1 ;;
esac
"""
KNFT = """
read -r first
case "$*" in
    *--node=node-2*) echo "not ready: 1 problem, from $first"; echo more; exit 3 ;;
    *--node=node-3*) exit 1 ;;
    *) echo "ready to switch, from $first"; echo more ;;
esac
"""


class Fake:
    """A folder with programs that stand for kubectl and knft, and the answers of kubectl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program("kubectl", KUBECTL)
        self.program("knft", KNFT)
        self.answer("configmap", "mode: iptables\n")
        self.answer("objects.yaml", "objects\n")
        self.answer("nodes", "node-1 node-2")

    def program(self, name: str, text: str) -> None:
        """Write a program of the shell."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    def answer(self, name: str, text: str) -> None:
        """Write an answer of kubectl."""
        (self.folder / name).write_text(text)

    def start(self, *arguments: str, script: str = "node-knft.sh") -> subprocess.Popen[str]:
        """Start a script in a process group of its own."""
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "FAKE": str(self.folder)}
        # A shell cannot trap a signal that was ignored when it started, as in a job that runs in the background.
        command = ["env", "--default-signal", "sh", str(FOLDER / script), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True, restore_signals=True
        )

    def run(self, *arguments: str, script: str = "node-knft.sh") -> subprocess.CompletedProcess[str]:
        """Run a script."""
        with self.start(*arguments, script=script) as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    @property
    def commands(self) -> list[str]:
        """The commands that ran on nodes."""
        return (self.folder / "commands").read_text().splitlines()

    @property
    def deleted(self) -> list[str]:
        """The commands of kubectl that deleted pods."""
        return (self.folder / "deleted").read_text().splitlines()


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("preflight", f"preflight --filename=- --node=node-1 --config={CONFIG}"),
        ("diff -o json", f"diff --live --filename=- --node=node-1 --config={CONFIG} -o json"),
        ("trace --to [::1]:80", f"trace --filename=- --node=node-1 --config={CONFIG} --to [::1]:80"),
        ("preflight --detect-local-mode NodeCIDR", "preflight --filename=- --node=node-1 --detect-local-mode NodeCIDR"),
        ("diff --cluster-cidr=10.0.0.0/8", "diff --live --filename=- --node=node-1 --cluster-cidr=10.0.0.0/8"),
    ],
)
def test_command_gets_objects_and_configuration(fake: Fake, arguments: str, command: str) -> None:
    done = fake.run("node-1", *arguments.split())
    assert (done.stdout, done.stderr, done.returncode) == ("ready to switch, from objects\nmore\n", "", 0)
    assert fake.commands == [f"knft {command}"]


def test_cluster_without_the_configmap_has_no_configuration(fake: Fake) -> None:
    """The path is that of the ConfigMap in the pod, which starts without it."""
    fake.answer("configmap", "")
    assert fake.run("node-1", "preflight").returncode == 0
    assert fake.commands == ["knft preflight --filename=- --node=node-1"]
    pod = json.loads((FOLDER / "node-command.json").read_text())["spec"]
    (mount,) = (item for item in pod["containers"][0]["volumeMounts"] if item["name"] == "kube-proxy")
    assert mount["mountPath"] == os.path.dirname(CONFIG)  # noqa: PTH120 - a path in the pod
    assert {"name": "kube-proxy", "configMap": {"name": "kube-proxy", "optional": True}} in pod["volumes"]


def test_all_nodes_have_a_line_each_and_the_highest_status(fake: Fake) -> None:
    done = fake.run("--all", "preflight")
    assert done.stdout == "node-1: ready to switch, from objects\nnode-2: not ready: 1 problem, from objects\n"
    assert done.returncode == 3
    fake.answer("nodes", "node-2 node-1")
    assert fake.run("--all", "preflight").returncode == 3
    fake.answer("nodes", "node-1 node-3")
    done = fake.run("--all", "preflight")
    assert done.stdout == "node-1: ready to switch, from objects\nnode-3: no answer: exit status 1\n"
    assert done.returncode == 1
    fake.answer("nodes", "")
    done = fake.run("--all", "preflight")
    assert "no node with label kubernetes.io/os=linux" in done.stderr
    assert done.returncode == 1


def test_objects_are_read_again_for_each_node(fake: Fake) -> None:
    """A change after that would be a difference."""
    fake.program("knft", f'read -r first; echo "$first"; echo later >{fake.folder}/objects.yaml')
    assert fake.run("--all", "diff").stdout == "node-1: objects\nnode-2: later\n"


def test_command_does_not_run_without_the_objects(fake: Fake) -> None:
    (fake.folder / "objects.yaml").unlink()
    done = fake.run("node-1", "preflight")
    assert (done.stdout, done.returncode) == ("", 1)
    assert not (fake.folder / "commands").exists()


def test_no_file_is_left(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake.folder / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    assert fake.run("node-1", "preflight").returncode == 0
    assert list(folder.iterdir()) == []


def test_status_of_one_node_is_that_of_the_command(fake: Fake) -> None:
    assert fake.run("node-2", "preflight").returncode == 3
    assert len(fake.deleted) == 1


def test_several_commands_at_once_have_pods_of_their_own(fake: Fake) -> None:
    for _ in range(2):
        fake.run("node-1", "preflight")
    assert len(set(fake.deleted)) == 2


def test_output_of_a_program_without_standard_input_is_that_of_its_log(fake: Fake) -> None:
    fake.answer("status", "4")
    fake.answer("logs", "line\n")
    done = fake.run("node-1", "true", script="node-command.sh")
    assert (done.stdout, done.returncode, fake.commands) == ("line\n", 4, ["true"])
    (fake.folder / "status").unlink()
    done = fake.run("node-1", "true", script="node-command.sh")
    assert (done.stdout, done.returncode) == ("", 1)
    assert len(fake.deleted) == 2


def test_unknown_node_is_an_error(fake: Fake) -> None:
    done = fake.run("node-9", "diff")
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr == 'Error from server (NotFound): nodes "node-9" not found\n'


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=["HUP", "INT", "TERM"],
)
def test_pod_is_deleted_after_a_signal(fake: Fake, number: signal.Signals, status: int) -> None:
    fake.program("knft", "exec sleep 60")
    with fake.start("node-1", "diff") as script:
        wait_until((fake.folder / "commands").exists, "the command does not run")
        os.killpg(script.pid, number)
        assert script.wait(TIMEOUT) == status
    assert len(fake.deleted) == 1


def test_pod_is_deleted_if_the_reader_of_the_output_has_gone(fake: Fake) -> None:
    fake.program("knft", "exec seq 1000000")
    with fake.start("node-1", "diff") as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "1\n"
        script.stdout.close()
        assert script.wait(TIMEOUT) != 0
    assert len(fake.deleted) == 1


def test_error_of_kubectl_ends_the_script(fake: Fake) -> None:
    fake.program("kubectl", "echo 'cannot connect' >&2; exit 1")
    done = fake.run("node-1", "preflight")
    assert (done.stdout, done.stderr, done.returncode) == ("", "cannot connect\n", 1)


@pytest.mark.parametrize("arguments", [(), ("node-1",), ("node-1", "run")])
def test_wrong_usage_is_an_error(fake: Fake, arguments: tuple[str, ...]) -> None:
    done = fake.run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: sh ")
    assert done.stderr.endswith("/node-knft.sh NODE|--all preflight|diff|trace [FLAG ...]\n")


def test_knft_accepts_the_command(fake: Fake) -> None:
    fake.answer("objects.yaml", write_manifests(fake.folder).read_text())
    fake.program("knft", f'exec {shlex.quote(sys.executable)} -m knft "$@"')
    packet = ("--from", "10.244.1.11", "--to", "10.96.0.10:80", "--cluster-cidr", "10.244.0.0/16")
    done = fake.run("node-1", "trace", *packet)
    assert done.stdout.startswith("the packet reaches one of 2 endpoints\n")
    assert done.returncode == 0
