"""Runs deploy/kustomize/node-command.sh, with which docs/operations/installation.md runs commands on a node."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from deploy.cluster.cluster import Cluster
from deploy.cluster.processes import CHECKOUT

_SCRIPT = CHECKOUT / "deploy/kustomize/node-command.sh"
_LINES = "".join(f"line {number}\n" for number in range(2000))
_PRINT = ("python3", "-c", "import sys; [print('line', number) for number in range(2000)]; sys.exit(3)")
_COPY = ("python3", "-c", "import sys; sys.stdout.write(sys.stdin.read()); sys.exit(4)")


class _Case(Struct, frozen=True):
    """A command, and its output and exit status."""

    command: Sequence[str]
    output: str
    status: int
    stdin: str | None = None


def check_node_command(cluster: Cluster, pod: dict[str, Any]) -> list[str]:
    """Run commands with the image of a pod, on its node; return how their output or exit status differ."""
    node, image = pod["spec"]["nodeName"], pod["spec"]["containers"][0]["image"]
    problems = []
    for case in _cases(cluster, pod):
        problem = _difference(case, _run(cluster, image, node, case))
        print(f"e2e: node-command.sh {node} {' '.join(case.command)[:40]}: {problem or 'as expected'}", flush=True)
        problems += [f"node-command.sh {node}: {problem}"] if problem else []
    return problems


def _cases(cluster: Cluster, pod: dict[str, Any]) -> Iterator[_Case]:
    version = ("knft", "version")
    inside = cluster.kubectl("exec", "--namespace=kube-system", pod["metadata"]["name"], "--", *version)
    yield _Case(version, inside, 0)
    yield _Case(_PRINT, _LINES, 3)
    yield _Case(_COPY, _LINES, 4, stdin=_LINES)


def _run(cluster: Cluster, image: str, node: str, case: _Case) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{cluster.programs.folder}:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.state.kubeconfig),
        "KNFT_IMAGE": image,
    }
    flags = () if case.stdin is None else ("-i",)
    return subprocess.run(
        ["sh", str(_SCRIPT), *flags, node, *case.command],  # noqa: S607
        input=case.stdin or "",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _difference(case: _Case, done: subprocess.CompletedProcess[str]) -> str:
    """Return how a result differs from the expected one, "" if it does not."""
    if done.returncode != case.status:
        return f"the exit status is {done.returncode}, not {case.status}: {done.stderr.strip()[-500:]}"
    if done.stdout != case.output:
        found, expected = done.stdout.splitlines(), case.output.splitlines()
        number = next(
            (number for number, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), -1
        )
        return f"{len(found)} lines were printed, not {len(expected)}; different at line {number}"
    return ""
