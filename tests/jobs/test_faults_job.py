"""Tests of the parts of ``tests.faults`` that need no cluster."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from deploy.cluster.plan import make_plan
from deploy.programs.errors import SetupError
from tests.faults import objects, watches
from tests.faults.__main__ import judge_again, make_fault
from tests.faults.faults import FAULTS, Fault, Options
from tests.faults.neighbours import count_full
from tests.faults.pod_lives import PodLife, PodLives
from tests.faults.records import ClientPlan, Kind, Record, Target
from tests.faults.report import Report, Result, faults, notes, table
from tests.faults.testbed import Testbed
from tests.faults.traffic import Place
from tests.faults.verdict import Verdict, judge
from tests.support.background import run_in_background
from tests.support.metallb import pool_objects, reduced_objects
from tests.support.waiting import wait_until

_NOON = datetime(2026, 11, 25, 12, tzinfo=UTC).timestamp()


def _pod(name: str = "web-1", deleted: str = "", finished: str = "", event: str = "MODIFIED") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if deleted:
        metadata |= {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 30}
    state = {"terminated": {"finishedAt": finished}} if finished else {"running": {}}
    item = {"kind": "Pod", "metadata": metadata, "status": {"containerStatuses": [{"state": state}]}}
    return {"type": event, "object": item}


def _slice(*ready: str, event: str = "MODIFIED", address: str = "10.0.0.1") -> dict[str, Any]:
    endpoints = [{"addresses": [address], "conditions": {"ready": True}, "targetRef": {"name": name}} for name in ready]
    item = {"kind": "EndpointSlice", "metadata": {"name": "web-abc"}, "endpoints": endpoints}
    return {"type": event, "object": item}


def _is_explained(lives: PodLives, record: Record) -> bool:
    """Judge one connection that failed."""
    verdict = judge([record], lives.lives, _NOON)
    assert verdict.new_failed + verdict.kept_broken == 1
    return not verdict.unexplained


def _new(begun: float, ended: float, error: str = "TimeoutError") -> Record:
    return Record(Kind.NEW, "cluster IP", _NOON + begun, _NOON + ended, error=error, asked=_NOON + begun)


def _kept(server: str, answered: float, asked: float, ended: float, error: str = "ConnectionResetError") -> Record:
    times = (_NOON + asked, _NOON + answered)
    return Record(Kind.KEPT, "cluster IP", _NOON, _NOON + ended, server, 5, 0, error, *times)


def _deleted_pod(died: int) -> PodLives:
    """Return the lives of a pod that is deleted and removed from its EndpointSlice after 10 s, and dies later."""
    lives = PodLives()
    lives.observe(_slice("web-1", "web-2"), _NOON)
    lives.observe(_slice("web-2"), _NOON + 10)
    finished = f"2026-11-25T12:00:{died}Z"
    lives.observe(_pod(deleted="2026-11-25T12:00:40Z", finished=finished), _NOON + died)
    assert lives.lives["web-1"].deleted == _NOON + 10
    return lives


def test_broken_connection_is_explained_by_the_death_of_its_own_pod_alone() -> None:
    lives = _deleted_pod(died=25)
    assert _is_explained(lives, _kept("web-1", 25, 25.5, 25.6))
    assert _is_explained(lives, _kept("web-1", 25, 25.5, 55.5, "TimeoutError"))
    assert not _is_explained(lives, _kept("web-2", 25, 25.5, 25.6))


def test_broken_connection_is_not_explained_while_its_deleted_pod_serves() -> None:
    lives = _deleted_pod(died=25)
    assert not _is_explained(lives, _kept("web-1", 10.5, 11, 11))
    # The pod lives for 9 s more, and does not answer.
    assert not _is_explained(lives, _kept("web-1", 15.5, 16, 46, "TimeoutError"))
    # A busy pod dies while it answers: the end of its process closes the connection.
    assert _is_explained(lives, _kept("web-1", 15.5, 16, 25.2, "ConnectionError closed by the server"))


def test_broken_connection_is_not_explained_by_a_death_before_its_last_answer() -> None:
    lives = PodLives()
    lives.observe(_pod(finished="2026-11-25T12:00:05Z"), _NOON + 6)
    assert _is_explained(lives, _kept("web-1", 5, 5.5, 5.6))
    assert not _is_explained(lives, _kept("web-1", 20, 20.5, 20.6))


def test_flow_answered_by_another_pod_is_explained_when_its_own_is_no_longer_an_endpoint() -> None:
    lives = _deleted_pod(died=25)
    assert _is_explained(lives, _kept("web-1", 9.8, 10.3, 10.4, "ConnectionError answered by web-2"))
    # It has answered until it died.
    assert _is_explained(lives, _kept("web-1", 24.8, 25.3, 25.4, "ConnectionError answered by web-2"))
    assert not _is_explained(lives, _kept("web-1", 5, 5.5, 5.6, "ConnectionError answered by web-2"))
    assert not _is_explained(lives, _kept("web-2", 9.8, 10.3, 10.4, "ConnectionError answered by web-1"))


def test_new_connection_is_explained_while_a_dead_pod_is_an_endpoint() -> None:
    lives = PodLives()
    lives.observe(_slice("web-1", "web-2"), _NOON)
    lives.observe(_pod(finished="2026-11-25T12:00:10Z"), _NOON + 11)
    assert _is_explained(lives, _new(20, 50))
    assert _is_explained(lives, _new(9.5, 39.5))
    assert not _is_explained(lives, _new(1, 2))
    lives.observe(_slice("web-2"), _NOON + 60)
    assert _is_explained(lives, _new(61, 91))
    assert not _is_explained(lives, _new(63, 93))


def test_new_connection_is_not_explained_by_a_pod_that_died_while_it_waited() -> None:
    lives = PodLives()
    lives.observe(_slice("web-1", "web-2"), _NOON)
    lives.observe(_pod(finished="2026-11-25T12:00:31Z"), _NOON + 32)
    assert not _is_explained(lives, _new(0.5, 30.5))
    assert not _is_explained(lives, _new(27, 57))
    assert _is_explained(lives, _new(29.5, 59.5))


def test_new_connection_is_not_explained_by_a_pod_that_died_after_it_was_an_endpoint() -> None:
    """A pod that is deleted answers for some seconds after it was removed from the EndpointSlices."""
    lives = _deleted_pod(died=25)
    assert not any(_is_explained(lives, _new(begun, begun + 30)) for begun in (9, 11, 14, 24, 27))
    # It dies at once, and Service proxies have not followed yet.
    assert _is_explained(_deleted_pod(died=11), _new(11.5, 41.5))


def test_new_connection_is_not_explained_by_a_pod_that_has_started_again() -> None:
    lives = PodLives()
    lives.observe(_slice("web-1"), _NOON)
    lives.kill({"web-1": _NOON + 5})
    started = _pod()
    started["object"]["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = "2026-11-25T12:00:30Z"
    lives.observe(started, _NOON + 31)
    assert _is_explained(lives, _new(31, 61))
    assert not _is_explained(lives, _new(40, 70))
    # The new containers have another address, and the EndpointSlice had that of the old ones.
    lives.observe(_slice("web-1", address="10.0.0.2"), _NOON + 45)
    assert _is_explained(lives, _new(40, 70))
    assert not _is_explained(lives, _new(50, 80))


def test_pod_that_was_no_endpoint_explains_no_new_connection() -> None:
    lives = PodLives()
    lives.observe(_pod("probe-1", finished="2026-11-25T12:00:10Z"), _NOON + 11)
    assert not _is_explained(lives, _new(20, 50))


def test_pod_of_a_killed_node_has_died_without_the_api_server() -> None:
    lives = PodLives()
    lives.observe(_slice("web-1"), _NOON)
    lives.kill({"web-1": _NOON + 5})
    assert _is_explained(lives, _kept("web-1", 4.8, 5.3, 35.3, "TimeoutError"))
    assert _is_explained(lives, _new(6, 36))


def test_pod_that_is_gone_without_a_last_status_has_died() -> None:
    lives = PodLives()
    lives.observe(_pod(event="DELETED"), _NOON + 5)
    assert lives.lives["web-1"].died == {_NOON + 5}


def test_report_can_be_judged_again(tmp_path: Path) -> None:
    pods = _deleted_pod(died=25).lives
    (tmp_path / "pods-rolled").mkdir()
    records = [_kept("web-1", 25, 25.5, 25.6), _new(20, 50)]
    (tmp_path / "pods-rolled" / "node-1.jsonl").write_bytes(
        b"".join(msgspec.json.encode(each) + b"\n" for each in records)
    )
    results = (
        Result("pods-rolled", "all pods are replaced", 60.0, started=_NOON, pods=pods),
        Result("nothing", "", 1.0),
    )
    report = Report("2026-11-25", "v1.36.3", "6.1", "dual", 600.0, 300, results[:1])
    (tmp_path / "faults.json").write_bytes(msgspec.json.encode(report))
    (judged,) = judge_again(tmp_path)
    assert (judged.pods, judged.verdict.kept_broken, judged.verdict.new_failed) == (pods, 1, 1)
    assert judged.verdict.unexplained == ("new connection to cluster IP from node-1, 20.0 s to 50.0 s: TimeoutError",)
    (tmp_path / "faults.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(report, results=results)))
    with pytest.raises(SetupError, match="does not say when pods died: nothing"):
        judge_again(tmp_path)


def test_full_neighbour_tables_are_counted_over_all_cpus() -> None:
    assert count_full("entries  allocs table_fulls\n00000002 00000001 0000000f\n00000002 00000003 00000010\n") == 31


def test_notes_name_the_delays_of_endpoint_slices_and_full_tables() -> None:
    lives = _deleted_pod(died=25)
    lives.observe(_slice("web-1"), _NOON + 5)
    lives.observe(_slice(), _NOON + 32)
    result = Result("pods-rolled", "", 60.0, pods=lives.lives, full_neighbour_tables=31)
    assert list(notes(result)) == [
        "pods-rolled: a pod was an endpoint for up to 22.0 s after its deletion",
        "pods-rolled: a pod was an endpoint for up to 7.0 s after its death",
        "pods-rolled: the kernel's neighbour tables were full 31 times",
    ]


def test_verdict_counts_connections_and_answers() -> None:
    records = [_new(1, 2, ""), _new(2, 3), _kept("web-1", 4, 4, 4, ""), _kept("web-1", 4, 5, 5)]
    found = judge(records, {}, _NOON)
    assert (found.new, found.new_failed, found.kept, found.kept_broken, found.answers) == (2, 1, 2, 1, 10)
    assert found.unexplained == (
        "new connection to cluster IP, 2.0 s to 3.0 s: TimeoutError",
        "kept connection to cluster IP of web-1, 0.0 s to 5.0 s: ConnectionResetError",
    )


def test_result_without_connections_or_with_an_error_is_not_good() -> None:
    counted = Verdict(new=9, kept=2)
    assert Result("nothing", "the control", 1.0, counted).is_good
    assert not Result("nothing", "the control", 1.0).is_good
    assert not Result("nothing", "the control", 1.0, counted, error="timeout").is_good
    assert not Result("nothing", "the control", 1.0, Verdict(new=9, kept=2, unexplained=("a",))).is_good


def test_table_has_a_row_for_each_fault() -> None:
    results = [
        Result("nothing", "the control", 20.4, Verdict(new=9, kept=2, answers=7)),
        Result("node-drained", "a node is drained", 5.0, error="no node\nis ready"),
    ]
    lines = list(table(results))
    assert lines[2] == "| `nothing`: the control | 20 s | 9 | 0 | 2 | 0 | 7 | 0 | 0 |"
    assert lines[3].endswith("| no node |")
    assert list(faults(results)) == ["node-drained: no node\nis ready"]


def test_faults_have_different_names_and_a_description_of_one_line() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert [fault.name for fault in FAULTS if not re.fullmatch(r"[^\n]{10,120}", fault.text)] == []


def test_servers_have_a_service_with_nodeports_in_both_families() -> None:
    deployment, service = objects.servers(objects.WEB, 6)
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert [port["nodePort"] for port in service["spec"]["ports"]] == [30080, 30081]
    assert service["spec"]["ipFamilyPolicy"] == "PreferDualStack"


class _Server:
    """Answers as agnhost's ``netexec`` does, over TCP and UDP, with a name that can change."""

    def __init__(self) -> None:
        self.name = "web-1"
        self.writers: list[asyncio.StreamWriter] = []
        self.udp_closed = asyncio.Event()
        self.ports: dict[str, int] = {}

    async def start(self, host: str) -> None:
        self._tcp = await asyncio.start_server(self._answer, host, 0)
        self.ports["tcp"] = self._tcp.sockets[0].getsockname()[1]
        self.loop = asyncio.get_running_loop()
        self._udp, _ = await self.loop.create_datagram_endpoint(lambda: _Datagrams(self), local_addr=(host, 0))
        self.ports["udp"] = self._udp.get_extra_info("sockname")[1]

    async def close(self) -> None:
        self.end()
        self._tcp.close()
        self._udp.close()
        await self.udp_closed.wait()
        for writer in self.writers:
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /hostname HTTP/1.1\r\n"):
                # In two pieces, as a server may send them.
                writer.write(f"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: {len(self.name)}\r\n\r\n".encode())
                await writer.drain()
                await asyncio.sleep(0.001)
                writer.write(self.name.encode())
                await writer.drain()

    def end(self) -> None:
        """Close all connections; another pod answers from now on."""
        self.name = "web-2"
        for writer in self.writers:
            writer.transport.abort()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: _Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Python 3.11's is no instance of DatagramTransport.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio passes it
        self._server.udp_closed.set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert data == b"hostname\n"
        self._transport.sendto(self._server.name.encode(), addr)


async def _records(host: str) -> list[Record]:
    """Return the records of a client process, during whose time the server's pod ends."""
    server = _Server()
    await server.start(host)
    targets = tuple(Target(protocol, host, port, protocol) for protocol, port in server.ports.items())
    plan = msgspec.json.encode(ClientPlan(targets, kept=1, pause=0.01, kept_pause=0.01)).decode()
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.faults.client", plan), stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    lines: list[bytes] = []
    for end in (server.end, client.terminate):
        for _ in range(60):
            lines.append(await client.stdout.readline())  # noqa: PERF401 - the server must run meanwhile
        end()
    lines += (await client.stdout.read()).splitlines()
    assert await client.wait() == 0
    await server.close()
    return [msgspec.json.decode(line, type=Record) for line in lines]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_client_records_new_connections_and_kept_ones_that_break_or_change_their_server(host: str) -> None:
    records = asyncio.run(_records(host))
    new = [record for record in records if record.kind is Kind.NEW and not record.error]
    assert {(record.target, record.server) for record in new} == {
        (protocol, server) for protocol in ("tcp", "udp") for server in ("web-1", "web-2")
    }
    kept = [(record.target, record.server, bool(record.error)) for record in records if record.kind is Kind.KEPT]
    assert sorted(kept) == sorted(
        (protocol, server, server == "web-1") for protocol in ("tcp", "udp") for server in ("web-1", "web-2")
    )
    assert [record.error for record in records if record.target == "udp" and record.error] == [
        "ConnectionError answered by web-2"
    ]
    assert all(record.answers > 1 for record in records if record.kind is Kind.KEPT)


def test_metallb_runs_without_webhooks() -> None:
    manifest = """
kind: Deployment
spec: {template: {spec: {containers: [{name: controller, args: [--port=7472]}]}}}
---
kind: CustomResourceDefinition
spec: {group: metallb.io, conversion: {strategy: Webhook}}
---
kind: ValidatingWebhookConfiguration
"""
    deployment, definition = reduced_objects(manifest)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--port=7472", "--webhook-mode=disabled", "--disable-cert-rotation"]
    assert definition["spec"] == {"group": "metallb.io"}


def test_load_balancers_have_addresses_in_the_network_of_the_nodes() -> None:
    pool, _ = pool_objects(make_plan().addresses)
    assert pool["spec"]["addresses"] == [
        "192.168.100.200-192.168.100.209",
        "fd00:192:168:100::200-fd00:192:168:100::209",
    ]


def test_watches_follow_pods_also_after_the_api_server_has_ended_a_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in for kubectl prints the next event each time that it is started, and ends."""
    monkeypatch.setattr(watches, "_PAUSE", 0.01)
    for name, events in {
        "pods": [_pod(), _pod(deleted="2026-11-25T12:00:40Z"), _pod(event="DELETED")],
        "endpointslices": [_slice("web-1"), _slice()],
    }.items():
        for number, event in enumerate(events):
            (tmp_path / f"{name}-{number}").write_text(json.dumps(event))
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"""#!/bin/sh
name=${{3##*/}} name=${{name%%\\?*}}
for file in {tmp_path}/$name-*; do [ -e "$file" ] && cat "$file" && echo && exec rm "$file"; done
exec sleep 1000
""")
    kubectl.chmod(0o755)
    with watches.Watches([str(kubectl)]) as found:
        lives = found.pods.lives
        wait_until(lambda: "web-1" in lives and lives["web-1"].deleted is not None, "no events")
        found.wait_for_deaths()
        assert lives["web-1"].died
        wait_until(lambda: _is_gone(lives["web-1"]), "no events")


def _is_gone(life: PodLife) -> bool:
    return bool(life.died and life.listings and life.listings[-1].unlisted)


class _Testbed:
    """Stands in for a cluster in which nothing changes."""

    def __init__(self, kubectl: Path) -> None:
        kubectl.write_text("#!/bin/sh\nexec sleep 1000\n")
        kubectl.chmod(0o755)
        self.kubectl_command = [str(kubectl)]
        self.killed: dict[str, float] = {}

    def wait_until_followed(self) -> None:
        pass


@contextmanager
def _serving() -> Iterator[_Server]:
    server, started = _Server(), threading.Event()

    async def serve(stop: threading.Event) -> None:
        await server.start("127.0.0.1")
        started.set()
        await asyncio.to_thread(stop.wait)
        await server.close()

    with run_in_background(lambda stop: asyncio.run(serve(stop)), "server"):
        started.wait()
        yield server


@pytest.mark.kernel
def test_fault_has_a_verdict_over_the_connections_during_it(tmp_path: Path) -> None:
    """The server ends all connections, and another pod answers, but no pod has died."""
    with _serving() as server:
        targets = tuple(Target(protocol, "127.0.0.1", port, protocol) for protocol, port in server.ports.items())
        places = {"here": Place(os.getpid(), ClientPlan(targets, kept=1, pause=0.02, kept_pause=0.02))}

        def end(_testbed: Testbed, _options: Options) -> None:
            server.loop.call_soon_threadsafe(server.end)

        fault = Fault("ended", end, lambda _testbed, _options: nullcontext(places))
        testbed = cast("Testbed", _Testbed(tmp_path / "kubectl"))
        result = make_fault(fault, testbed, Options(), tmp_path)
    assert result.error == ""
    assert result.verdict.new > 0
    assert result.verdict.kept_broken == 2
    assert len(result.verdict.unexplained) >= 2
    assert not result.is_good
