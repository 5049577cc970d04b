"""WorkerProcess: libnftables may crash, hang or be killed without harm to the daemon."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from knft.errors import KernelError, LibraryDiedError, UnavailableError, UnsupportedError
from knft.kernel import process
from knft.kernel.process import WorkerProcess
from knft.kernel.worker_messages import SetPart
from tests.support.lab.namespace import Namespace
from tests.support.processes import is_running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kernel


def test_answers_equal_those_of_the_library(library: WorkerProcess) -> None:
    assert library.run("add table ip t") == ""
    assert '"name": "t"' in library.run("list tables")
    with pytest.raises(KernelError, match="No such file or directory") as refused:
        library.run("delete table ip u")
    assert "delete table ip u" in refused.value.detail
    assert '"name": "t"' in library.run("list tables")


@pytest.mark.usefixtures("namespace")
def test_parts_of_an_answer_are_progress() -> None:
    """The health check must see that a long read makes progress."""
    received: list[SetPart] = []
    reported: list[int] = []
    with WorkerProcess(on_progress=lambda: reported.append(len(received))) as library:
        library.run("add table ip t\nadd set ip t s { type inet_service; }")
        library.run(f"add element ip t s {{ {', '.join(map(str, range(1, 1001)))} }}")
        reported.clear()
        library.dump_elements(socket.AF_INET, "t", ["s"], received.append)
    assert reported == [*range(1, len(received) + 1), len(received)]
    assert len(received) > 1


def test_killed_worker_is_reported_once_and_replaced(library: WorkerProcess) -> None:
    library.run("add table ip t")
    pid = library.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(LibraryDiedError, match=r"^the libnftables worker process was killed by SIGKILL$"):
        library.run("list tables")
    assert '"name": "t"' in library.run("list tables")


def test_crashed_worker_is_replaced(library: WorkerProcess) -> None:
    """libnftables 1.0.6 creates this map as a set and crashes on the rule that uses it; 1.1 refuses or accepts it."""
    library.run("add table ip t\nadd chain ip t c")
    container = {"family": "ip", "table": "t", "name": "m", "type": "ipv4_addr", "map": ["ipv4_addr", "inet_service"]}
    lookup = {"map": {"key": {"payload": {"protocol": "ip", "field": "daddr"}}, "data": "@m"}}
    rule = {"family": "ip", "table": "t", "chain": "c", "expr": [{"dnat": {"family": "ip", "addr": lookup}}]}
    died = False
    for item in ({"map": container}, {"rule": rule}):
        try:
            library.run(json.dumps({"nftables": [{"add": item}]}))
        except LibraryDiedError as error:
            died = "was killed by SIG" in str(error)
        except KernelError:
            pass
    version = json.loads(library.run("list tables"))["nftables"][0]["metainfo"]["version"]
    assert died is version.startswith("1.0.")


def test_hung_worker_is_killed(library: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    library.run("add table ip t")
    pid = library.pid
    assert pid is not None
    monkeypatch.setattr(process, "ANSWER_TIMEOUT_SECONDS", 0.1)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(LibraryDiedError, match=r"^libnftables did not answer within 0\.1 s and was killed$"):
        library.run("list tables")
    monkeypatch.undo()
    assert '"name": "t"' in library.run("list tables")


@pytest.mark.parametrize("commands", ["list tables", "# " + "x" * (1 << 20)], ids=["small", "more than the pipe holds"])
def test_hung_worker_is_logged_once_before_it_is_killed(
    library: WorkerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, commands: str
) -> None:
    library.run("add table ip t")
    pid = library.pid
    assert pid is not None
    monkeypatch.setattr(process, "ANSWER_WARNING_SECONDS", 0.05)
    monkeypatch.setattr(process, "ANSWER_TIMEOUT_SECONDS", 0.1)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(LibraryDiedError):
        library.run(commands)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"libnftables has not answered for 0.05 s; waiting, and replacing its worker process (pid {pid}) after 0.1 s"
    )


@pytest.mark.parametrize("large", ["commands", "answer"])
def test_worker_is_replaced_after_large_transaction(
    library: WorkerProcess, monkeypatch: pytest.MonkeyPatch, large: str
) -> None:
    """The replacement frees the memory that the worker used for the transaction."""
    addresses = ", ".join(f"10.0.{b}.{c}" for b in range(10) for c in range(100))
    add = f"add table ip t\nadd set ip t s {{ type ipv4_addr; }}\nadd element ip t s {{ {addresses} }}"
    before = library.pid
    if large == "answer":
        library.run(add)
        assert before == library.pid
    monkeypatch.setattr(process, "RECYCLE_BYTES", 1000)
    library.run(add if large == "commands" else "list table ip t")
    assert library.pid not in {None, before}
    assert before is not None
    assert not Path(f"/proc/{before}").exists()
    monkeypatch.undo()
    assert '"10.0.9.99"' in library.run("list table ip t")


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_output_of_the_worker_is_logged_and_never_blocks(
    library: WorkerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The worker does not have the daemon's standard error; a flood is lost when the pipe to the daemon is full."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, contextlib\nwith contextlib.suppress(BlockingIOError):\n"
        "    while True:\n        os.write(2, b'flood\\x1b[2J')\n"
    )
    library.close()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert library.run("add table ip t") == ""
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith("the libnftables worker process printed: flood\N{REPLACEMENT CHARACTER}[2Jflood")
    assert len(text) < 2 * process.MAX_LOGGED_CHARACTERS


def test_failed_start_of_next_worker_does_not_fail_the_current_call(
    library: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call reports the failure, and no file descriptor leaks."""
    library.run("add table ip t")
    before = _open_files()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(process, "RECYCLE_BYTES", 1)
    monkeypatch.setattr(subprocess, "Popen", fail)
    library.run("add table ip u")
    with pytest.raises(
        UnavailableError, match=r"cannot start the libnftables worker process: .* Resource temporarily unavailable"
    ):
        library.run("list tables")
    assert _open_files() == before - 3  # The pipes of the replaced worker.
    monkeypatch.undo()
    assert '"name": "u"' in library.run("list tables")


def test_failed_pipe_leaks_no_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pipe fails."""
    pipe, before = os.pipe, _open_files()
    left = [pipe]

    def pipe_once() -> tuple[int, int]:
        if not left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return left.pop()()

    monkeypatch.setattr(os, "pipe", pipe_once)
    with pytest.raises(UnavailableError, match=r"cannot start the libnftables worker process: .* Too many open files"):
        WorkerProcess()
    assert _open_files() == before


def test_library_works_if_the_daemon_has_many_open_files(namespace: Namespace) -> None:
    """In the daemon's own process it would abort, since it uses select()."""
    code = (
        "import os, resource; from knft.kernel.process import WorkerProcess\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))\n"
        "kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]\n"
        "with WorkerProcess() as library: library.run('add table ip knft')"
    )
    namespace.run([sys.executable, "-c", code])
    assert namespace.run(["nft", "list", "tables"]).stdout == "table ip knft\n"


def test_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['nftables'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        WorkerProcess() as library,
        pytest.raises(UnsupportedError, match="cannot import the Python module 'nftables'"),
    ):
        library.run("list tables")


def test_worker_dies_with_killed_daemon(namespace: Namespace) -> None:
    """So that it makes no change after the next daemon has read the table."""
    code = (
        "from knft.kernel.process import WorkerProcess; import time\n"
        "library = WorkerProcess(); library.run('list tables'); print(library.pid, flush=True); time.sleep(60)"
    )
    daemon = namespace.popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert daemon.stdout is not None
    child = int(daemon.stdout.readline())
    os.kill(child, signal.SIGSTOP)
    daemon.kill()
    daemon.communicate()
    wait_until(lambda: not is_running(child), "the libnftables process outlives knft")
