"""Commands that end by themselves while nobody reads their standard error."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.blocked_pipe import BlockedPipe
from tests.support.kernel_harness import service, slices
from tests.support.knft_command import NODE_FLAG, list_ruleset, write_manifests
from tests.support.lab.namespace import Namespace
from tests.support.log_lines import messages
from tests.support.logged_process import TIMEOUT


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace.create("once")
    yield made
    made.close()


@pytest.mark.kernel
def test_once_syncs_and_exits(namespace: Namespace, tmp_path: Path) -> None:
    """``--once`` waits some seconds for the reader (here 0.1), and then exits without having written its lines."""
    knft = "from knft.cli import log_handler; log_handler.EXIT_SECONDS = 0.1; from knft.cli.main import main; main()"
    write_manifests(tmp_path, [service("web", 1), *slices("web", range(11, 14))])
    log = BlockedPipe()
    process = namespace.popen(
        [sys.executable, "-c", knft, "run", "--once", "--manifests", str(tmp_path), *NODE_FLAG], stderr=log.writer
    )
    assert process.wait(TIMEOUT) == 0
    assert "10.96.0.1 " in list_ruleset(namespace)
    assert log.text() == ""
    log.close()


@pytest.mark.parametrize("start", ["", "writer.start()"])
def test_late_reader_gets_all_lines(start: str) -> None:
    """At its end, a process waits for its log lines."""
    code = (
        "import logging\nfrom knft.cli.logs import set_up_logging\n"
        "from knft.configuration.settings import LoggingSettings\n"
        f"writer = set_up_logging(LoggingSettings())\n{start}\n"
        "for number in range(3000):\n    logging.getLogger('knft').info('line %d', number)\n"
        "print('logged', flush=True)\n1 / 0"
    )
    log = BlockedPipe()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=log.writer, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "logged\n"
        while process.poll() is None:
            log.text()
    lines = log.text().splitlines()
    assert messages("\n".join(lines[:3000]), "I") == [f"line {number}" for number in range(3000)]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    log.close()
