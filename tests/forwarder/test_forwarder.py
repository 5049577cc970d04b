"""The forwarder's process, on this machine's loopback addresses: what clients and endpoints of a NodePort see."""

import asyncio
import logging
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from knft.decide.loopback import LOOPBACK_ADDRESSES
from knft.families import Family
from knft.forwarder import connections
from knft.forwarder import forwarder as forwarder_module
from knft.forwarder.endpoint_choice import EndpointChoice
from knft.forwarder.forwarder import Forwarder
from knft.forwarder.ports import ForwardedPort
from tests.support.waiting import TIMEOUT, wait_until

FAMILIES = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Endpoint:
    """A listening socket; the test accepts its connections."""

    def __init__(self, family: Family, backlog: int = 8) -> None:
        self.socket = socket.socket(FAMILIES[family])
        self.socket.bind((LOOPBACK_ADDRESSES[family], 0))
        self.socket.listen(backlog)
        self.socket.settimeout(TIMEOUT)
        self.target: tuple[str, int] = self.socket.getsockname()[:2]

    def accept(self) -> socket.socket:
        connection, _ = self.socket.accept()
        connection.settimeout(TIMEOUT)
        return connection


class Served:
    """A running forwarder in one family."""

    def __init__(self, family: Family, stack: ExitStack) -> None:
        self.family, self._stack, self.forwarder = family, stack, Forwarder()
        thread = threading.Thread(target=self.forwarder.run, args=[threading.Event()])
        thread.start()
        stack.callback(thread.join)
        stack.callback(self.forwarder.close)
        with closing(Endpoint(family).socket) as free:
            self.port: int = free.getsockname()[1]

    def endpoint(self) -> Endpoint:
        created = Endpoint(self.family)
        self._stack.enter_context(created.socket)
        return created

    def serve(self, *endpoints: Endpoint, affinity: int = 0, service: str = "default/web:http") -> None:
        """Serve the NodePort with these endpoints, and return when it is open."""
        port = ForwardedPort(service, tuple(each.target for each in endpoints), affinity)
        self.forwarder.update(self.family, {self.port: port})
        self.wait_for_listeners(1)

    def withdraw(self) -> None:
        self.forwarder.update(self.family, {self.port: None})
        self.wait_for_listeners(0)

    def wait_for_listeners(self, count: int) -> None:
        wait_until(lambda: self.forwarder.listener_count(self.family) == count, "the port is not served")

    def connect(self) -> socket.socket:
        client = self._stack.enter_context(socket.socket(FAMILIES[self.family]))
        client.settimeout(TIMEOUT)
        client.connect((LOOPBACK_ADDRESSES[self.family], self.port))
        return client

    def expect_reset(self) -> None:
        """Connect; the reset may arrive before ``connect`` returns."""
        with pytest.raises(ConnectionResetError):
            self.connect().recv(1)

    def is_refused(self) -> bool:
        """Whether nothing listens at the port."""
        with socket.socket(FAMILIES[self.family]) as client:
            return client.connect_ex((LOOPBACK_ADDRESSES[self.family], self.port)) != 0


@pytest.fixture(params=Family, ids=lambda family: family.value)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(request.param, stack)


def _received(connection: socket.socket) -> bytes:
    """Return all data until the end of the direction."""
    data = b""
    while piece := connection.recv(1 << 16):
        data += piece
    return data


def test_both_directions_are_forwarded_and_end_independently(served: Served) -> None:
    """The client ends its direction first, and still gets the answer; then the endpoint is the first."""
    endpoint = served.endpoint()
    served.serve(endpoint)
    client, backend = served.connect(), endpoint.accept()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    assert _received(backend) == b"question"
    backend.sendall(b"answer")
    backend.close()
    assert _received(client) == b"answer"
    client, backend = served.connect(), endpoint.accept()
    backend.sendall(b"greeting")
    backend.shutdown(socket.SHUT_WR)
    assert _received(client) == b"greeting"
    client.sendall(b"more")
    client.close()
    assert _received(backend) == b"more"
    backend.close()


def test_more_data_than_buffers_hold_arrives_complete(served: Served) -> None:
    """The endpoint reads only after the client has filled all buffers."""
    endpoint = served.endpoint()
    served.serve(endpoint)
    client, backend = served.connect(), endpoint.accept()
    data = os.urandom(16 << 20)

    def send() -> None:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    assert _received(backend) == data
    sender.join()
    backend.close()
    assert _received(client) == b""


def test_transfer_without_pauses_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sender and receiver are so fast that a direction never has to wait for them."""
    size, piece = 1 << 14, 64
    monkeypatch.setattr(connections, "_BUFFER_BYTES", piece)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def copy(source: socket.socket, destination: socket.socket) -> None:
        counting = asyncio.create_task(count_turns())
        await connections._copy(source, destination)
        counting.cancel()

    sender, source = socket.socketpair()
    destination, receiver = socket.socketpair()
    with sender, source, destination, receiver:
        sender.sendall(bytes(size))
        sender.shutdown(socket.SHUT_WR)
        for each in (source, destination):
            each.settimeout(0)
        asyncio.run(copy(source, destination))
        assert len(_received(receiver)) == size
    assert turns >= size // piece


@pytest.mark.parametrize("resets_client", [True, False])
def test_reset_is_passed_on(served: Served, *, resets_client: bool) -> None:
    endpoint = served.endpoint()
    served.serve(endpoint)
    client, backend = served.connect(), endpoint.accept()
    first, second = (client, backend) if resets_client else (backend, client)
    first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    first.close()
    with pytest.raises(ConnectionResetError):
        second.recv(1)
    backend.close()


def test_endpoint_that_refuses_resets_the_client(served: Served) -> None:
    """As in kube-proxy, no other endpoint is tried."""
    endpoint = served.endpoint()
    endpoint.socket.close()
    served.serve(endpoint)
    served.expect_reset()


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_endpoint_that_does_not_answer_resets_the_client(monkeypatch: pytest.MonkeyPatch, family: Family) -> None:
    """When the time limit has passed. The kernel ignores connections while the endpoint's queue is full."""
    monkeypatch.setattr(connections, "DIAL_SECONDS", 0.2)

    async def connect(target: tuple[str, int]) -> None:
        choice = EndpointChoice([target], 0)
        listener = connections.PortListener(target[0], 0, choice, connections.ConnectionLimit(lambda: 1))
        reader, writer = await asyncio.open_connection(*listener._socket.getsockname()[:2])
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), TIMEOUT)
        writer.close()
        await listener.close()

    with ExitStack() as stack:
        endpoint = Endpoint(family, backlog=0)
        stack.enter_context(endpoint.socket)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket(FAMILIES[family]))
            waiting.settimeout(0)
            waiting.connect_ex(endpoint.target)
        asyncio.run(connect(endpoint.target))


def test_new_connections_use_the_changed_endpoints(served: Served) -> None:
    first, second = served.endpoint(), served.endpoint()
    served.serve(first)
    established, backend = served.connect(), first.accept()
    served.serve(second)
    wait_until(lambda: _reaches(served, second, first), "the former endpoint is still used")
    established.sendall(b"still here")
    assert backend.recv(64) == b"still here"
    backend.close()


def _reaches(served: Served, wanted: Endpoint, former: Endpoint) -> bool:
    """Connect, and return whether the connection reaches ``wanted``; the change may not have arrived yet."""
    with served.connect() as client:
        client.sendall(b"?")
        for endpoint in (wanted, former):
            endpoint.socket.settimeout(0.5)
            with suppress(TimeoutError), endpoint.accept():
                return endpoint is wanted
    return False


def test_affinity_keeps_the_endpoint(served: Served) -> None:
    endpoints = [served.endpoint(), served.endpoint()]
    served.serve(*endpoints, affinity=3600)
    reached = set()
    for _ in range(12):
        with served.connect() as client:
            client.sendall(b"?")
            reached.add(_reaches_one_of(endpoints))
    assert len(reached) == 1


def _reaches_one_of(endpoints: list[Endpoint]) -> int:
    """Return the number of the endpoint that a connection has reached."""
    numbers: list[int] = []

    def accept() -> bool:
        for number, endpoint in enumerate(endpoints):
            endpoint.socket.settimeout(0)
            with suppress(BlockingIOError):
                endpoint.accept().close()
                numbers.append(number)
        return bool(numbers)

    wait_until(accept, "no endpoint is reached")
    return numbers[0]


def test_withdrawn_port_is_closed_and_its_connections_stay(served: Served) -> None:
    endpoint = served.endpoint()
    served.serve(endpoint)
    client, backend = served.connect(), endpoint.accept()
    served.withdraw()
    assert served.is_refused()
    client.sendall(b"still here")
    assert backend.recv(64) == b"still here"
    backend.close()
    served.serve(endpoint)
    assert not served.is_refused()


def test_port_of_another_program_is_reported_and_opened_when_it_is_free(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """The other NodePorts are served meanwhile, and any change retries it."""
    caplog.set_level(logging.INFO)
    endpoint, address = served.endpoint(), LOOPBACK_ADDRESSES[served.family]
    with socket.socket(FAMILIES[served.family]) as other:
        other.bind((address, served.port))
        other.listen()
        with closing(Endpoint(served.family).socket) as free:
            second: int = free.getsockname()[1]
        port = ForwardedPort("default/web:http", (endpoint.target,))
        served.forwarder.update(served.family, {served.port: port})
        wait_until(lambda: bool(served.forwarder.report.failed), "the failure is not reported")
        served.forwarder.update(served.family, {second: ForwardedPort("default/db:sql", (endpoint.target,))})
        served.wait_for_listeners(1)
        assert served.forwarder.listen_failures(served.family) >= 2
    served.forwarder.update(served.family, {second: None})
    wait_until(lambda: not served.forwarder.report.failed, "the port is not retried")
    assert not served.is_refused()
    what = f"NodePort {served.port} of Service port default/web:http at {address}"
    assert caplog.messages == [
        f"cannot serve {what}: Address already in use; other NodePorts are served, and this one is retried",
        f"now serving {what}",
    ]


def test_process_that_ends_is_replaced(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections end, and all NodePorts are served again."""
    monkeypatch.setattr(served.forwarder._delay, "_next", 0.01)
    endpoint = served.endpoint()
    served.serve(endpoint)
    client, backend = served.connect(), endpoint.accept()
    assert served.forwarder.pid is not None
    os.kill(served.forwarder.pid, signal.SIGKILL)
    assert _received(backend) == b""
    assert _received(client) == b""
    wait_until(lambda: bool(caplog.messages), "the end of the process is not logged")
    wait_until(lambda: not served.is_refused(), "the port is not served again")
    ended = "the process that serves NodePorts on loopback addresses was killed by signal 9; its connections have ended"
    assert caplog.messages == [f"{ended}, and another is started in 0.01 s"]
    backend.close()


def test_process_that_cannot_start_is_reported_with_what_it_printed(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``knft status`` reads the problem, which ends with the first report of the next process."""
    monkeypatch.setattr(served.forwarder._delay, "_next", 0.01)
    monkeypatch.setattr(sys, "executable", "/bin/cat")
    endpoint = served.endpoint()
    served.forwarder.update(served.family, {served.port: ForwardedPort("default/web:http", (endpoint.target,))})
    wait_until(lambda: bool(served.forwarder.problem), "the problem is not reported")
    assert served.forwarder.problem.startswith("the process that serves NodePorts on loopback addresses exited with")
    wait_until(lambda: any("addresses printed: " in each for each in caplog.messages), "the output is not logged")
    wait_until(
        lambda: any("status 1; another is started in" in each for each in caplog.messages), "the end is not logged"
    )
    monkeypatch.undo()
    served.wait_for_listeners(1)
    assert served.forwarder.problem == ""


def test_hung_process_is_replaced(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not report, although nothing is sent to it. Another one that does report stays for longer."""
    monkeypatch.setattr(forwarder_module, "REPORT_SECONDS", 0.1)
    monkeypatch.setattr(forwarder_module, "CHECK_SECONDS", 0.5)
    monkeypatch.setattr(served.forwarder._delay, "_next", 0.01)
    served.serve(served.endpoint())
    process, hung = served.forwarder._process, served.forwarder.pid
    assert process is not None
    assert hung is not None
    wait_until(lambda: process.reports >= 40, "the process does not report")
    assert served.forwarder.pid == hung
    os.kill(hung, signal.SIGSTOP)
    wait_until(lambda: served.forwarder.pid not in {hung, None}, "the process is not replaced")
    assert any("did not report for 3 s and was killed" in each for each in caplog.messages)


def test_process_gets_no_other_variables_of_the_environment(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/root/secret")
    served.serve(served.endpoint())
    found = Path(f"/proc/{served.forwarder.pid}/environ").read_bytes().split(b"\0")
    assert {each.partition(b"=")[0] for each in found} <= {b"", b"PYTHONPATH", b"PYTHONHOME", b"LD_LIBRARY_PATH"}


def test_answer_arrives_although_the_endpoint_reads_no_more(served: Served) -> None:
    """As servers that reject an upload: they answer, end the connection, and the client still sends."""
    endpoint = served.endpoint()
    served.serve(endpoint)
    client, backend = served.connect(), endpoint.accept()
    answer = os.urandom(1 << 16)
    backend.sendall(answer)
    backend.shutdown(socket.SHUT_WR)
    backend.close()
    for _ in range(20):
        client.sendall(b"more")
        time.sleep(0.01)  # Each piece is one more write to the endpoint.
    client.shutdown(socket.SHUT_WR)
    assert _received(client) == answer


def test_connection_ends_if_its_client_fails_while_both_directions_are_full(served: Served) -> None:
    """An endpoint that sends all back stops reading when the client does: neither direction could go on."""
    endpoint = served.endpoint()
    served.serve(endpoint)
    client, backend = served.connect(), endpoint.accept()
    for each in (client, backend):
        each.settimeout(1)
        with pytest.raises(TimeoutError):
            _send_without_end(each)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    client.close()
    backend.settimeout(TIMEOUT)
    with backend, pytest.raises(ConnectionResetError):
        _send_without_end(backend)


def _send_without_end(connection: socket.socket) -> None:
    while True:
        connection.sendall(bytes(1 << 20))


def test_connections_beyond_the_limit_are_reset(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """The limit follows from the open files that the process may have."""
    endpoint = served.endpoint()
    served.serve(endpoint)
    pid = served.forwarder.pid
    assert pid is not None
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (64 + 1 + 2, 1024))
    client, backend = served.connect(), endpoint.accept()
    served.expect_reset()
    client.sendall(b"still here")
    assert backend.recv(64) == b"still here"
    served.forwarder.update(served.family, {served.port: ForwardedPort("default/web:http", (endpoint.target,), 1)})
    wait_until(lambda: bool(caplog.messages), "the refusal is not logged")
    assert caplog.messages == ["refused 1 connections to NodePorts on loopback addresses: too many are open (1)"]
    backend.close()


def test_no_process_runs_before_a_port_is_served(served: Served) -> None:
    assert served.forwarder.pid is None
    served.forwarder.update(served.family, {served.port: None})
    assert served.forwarder.pid is None


def test_process_is_not_spared_if_memory_runs_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children inherit the OOM score adjustment of knft, which is negative."""
    unprotected: list[int] = []
    monkeypatch.setattr(forwarder_module, "unprotect_from_oom", unprotected.append)
    served.serve(served.endpoint())
    assert unprotected == [served.forwarder.pid]


def test_process_has_no_capabilities(served: Served) -> None:
    served.serve(served.endpoint())
    lines = Path(f"/proc/{served.forwarder.pid}/status").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":\t", 1) for line in lines if line.startswith(("Cap", "NoNewPrivs")))
    assert found["NoNewPrivs"] == "1"
    assert {found[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
