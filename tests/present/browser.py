"""Headless Chromium, controlled through --remote-debugging-pipe: loads pages, records requests and logs."""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMANDS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have little of it
)
_TIMEOUT = 60.0
"""Timeout for a reply of the browser, in seconds, on a busy machine."""


class Browser:
    """One page of a browser.

    ``requests`` are the URLs of all requests, ``blocked`` those that the page's Content-Security-Policy blocked, and
    ``log_entries`` are its log messages, exceptions and issues.
    """

    def __init__(self, output_pipe: int, input_pipe: int) -> None:
        """Attach to a new page; ``output_pipe`` and ``input_pipe`` are the pipes to the browser and from it."""
        self._output_pipe, self._input_pipe = output_pipe, input_pipe
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.blocked: list[str] = []
        self.log_entries: list[str] = []
        self._urls: dict[str, str] = {}
        self._loads = 0
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "Audits"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._output_pipe, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next_message()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result

    def open(self, url: str) -> None:
        """Open a page, and wait until it has loaded."""
        for log in (self.requests, self.blocked, self.log_entries):
            log.clear()
        loads = self._loads
        self.send("Page.navigate", url=url)
        while self._loads == loads:
            self._next_message()

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def _next_message(self) -> dict[str, Any]:
        """Return the next message after recording it."""
        deadline = time.monotonic() + _TIMEOUT
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._input_pipe], [], [], max(0, deadline - time.monotonic()))
            assert readable, "the browser does not reply"
            data = os.read(self._input_pipe, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._record(message.get("method", ""), message.get("params", {}))
        return message

    def _record(self, event: str, details: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loads += 1
        elif event == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
            self._urls[details["requestId"]] = details["request"]["url"]
        elif event == "Network.loadingFailed" and details.get("blockedReason") == "csp":
            self.blocked.append(self._urls[details["requestId"]])
        elif event in ("Log.entryAdded", "Runtime.exceptionThrown", "Audits.issueAdded"):
            self.log_entries.append(json.dumps(details))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with its profile in ``folder``, and end it."""
    program = next((data for data in map(shutil.which, COMMANDS) if data), None)
    assert program, f"none of {', '.join(COMMANDS)} is installed: sh tests/present/install.sh"
    browser_input, output_pipe = _pipe()
    input_pipe, browser_output = _pipe()
    flags = [*_FLAGS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    null_device = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    # Chromium reads commands from file descriptor 3 and answers on 4.
    actions = [(os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in ((browser_input, 3), (browser_output, 4))]
    discarded_output = [(os.POSIX_SPAWN_DUP2, null_device, number) for number in (1, 2)]
    pid = os.posix_spawn(
        program, [program, *flags], os.environ, file_actions=[*actions, *discarded_output], setpgroup=0
    )
    for number in (browser_input, browser_output, null_device):
        os.close(number)
    try:
        yield Browser(output_pipe, input_pipe)
    finally:
        os.close(output_pipe)
        os.close(input_pipe)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _pipe() -> tuple[int, int]:
    """Return a pipe whose numbers are none of those that the browser expects."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
