"""The documented command that asks the knft of all nodes, with a kubectl that runs commands in a namespace."""

import os
import re
import shlex
import stat
from pathlib import Path

import pytest

from tests.control.daemon import ControlledKnft
from tests.support.knft_command import KNFT

pytestmark = pytest.mark.kernel
PAGE = Path(__file__).parent.parent.parent / "docs" / "operations" / "status.md"
KUBECTL = f"""#!/bin/sh
case "$*" in
  "-n kube-system get pods -l k8s-app=knft --no-headers -o custom-columns=NODE:.spec.nodeName,POD:.metadata.name")
    printf 'node-2   knft-gone\\nnode-1   knft-here\\n' ;;
  "-n kube-system exec knft-here -- knft "*)
    shift 5; shift; exec {shlex.join(KNFT)} "$@" ;;
  *)
    echo "error: unable to upgrade connection: container not found" >&2; exit 1 ;;
esac
"""


def documented_command() -> str:
    """Return the command of the page that prints the summary of all nodes."""
    (command,) = (block for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL) if "xargs" in block)
    return str(command)


def test_documented_command_prints_a_line_for_each_node(daemon: ControlledKnft, tmp_path: Path) -> None:
    """Also for a node whose knft does not answer."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(stat.S_IRWXU)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    done = daemon.namespace.run(["env", path, "sh", "-c", documented_command()], check=False)
    first, second = map(str.rstrip, done.stdout.splitlines())
    assert re.fullmatch(
        r"node-1 +\S+ +ready +synced \S+ \w+ ago +0 left out +audit (none yet|\S+ \w+ ago, no differences)", first
    )
    assert re.fullmatch(r"node-2 +- +no answer", second)
    assert "error: unable to upgrade connection: container not found" in done.stderr
