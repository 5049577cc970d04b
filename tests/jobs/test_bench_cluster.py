"""The parts of ``make bench-cluster`` that need no cluster."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from tests.bench.process_tree import cpu_seconds, descendants, is_busy, pss_mib, resident_mib
from tests.bench.record import ENDED, Record
from tests.bench.results import Results
from tests.cluster.bench.address_search import AddressSearch
from tests.cluster.bench.commit_watch import CommitWatch
from tests.cluster.bench.connections import ConnectionFailedError, Connections
from tests.cluster.bench.document import PERFORMANCE, README, documents, recorded
from tests.cluster.bench.endpoints import ENDPOINT_NETWORKS, EndpointNumbers, spread
from tests.cluster.bench.evidence import kernel_state
from tests.cluster.bench.figures import CHANGE, CHANGE_CPU, LOAD, START, START_CPU, Figure, p99
from tests.cluster.bench.proxy_names import IPTABLES, KNFT, LEGACY, NFTABLES, PROXY_NAMES, default_proxies
from tests.cluster.bench.sizes import Repetitions, Size, size_named
from tests.cluster.bench.stored_objects import copies, stored_keys
from tests.cluster.bench.table import cells, markdown, rounded
from tests.cluster.bench.xtables_watch import XtablesWatch
from tests.cluster.churn.numbered_endpoints import TARGET_PORT, address, cluster_ip, endpoint_slice, service
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

SIZE = "1000x10"
RESULTS = Results(
    {"machine": "test"},
    (
        Record(KNFT, SIZE, START, {"cpu_s": 0.9}),
        Record(KNFT, SIZE, START, {"cpu_s": 1.1}),
        Record(KNFT, SIZE, START, {"cpu_s": 1.0}),
        Record(KNFT, SIZE, CHANGE, {"cpu_ms": 2.0}),
        Record(NFTABLES, SIZE, START, {"cpu_s": 0.25}),
        Record(NFTABLES, SIZE, CHANGE, {"cpu_ms": 1234.0}),
        Record(IPTABLES, SIZE, ENDED, note="not ready after 900 s"),
    ),
)


def test_size_has_a_name() -> None:
    assert size_named("1000x10") == Size(1000, 10)
    assert size_named("1000x10").name == "1000x10"


@pytest.mark.parametrize("name", ["", "1000", "x10", "0x10", "10x0", "10x10x10", "60000x10"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected SERVICESxENDPOINTS|at most 50000 Services"):
        size_named(name)


@pytest.mark.parametrize(
    ("samples", "seconds", "enough"), [(2, 5.0, False), (2, 99.0, False), (3, 11.0, True), (5, 0.0, True)]
)
def test_repetitions_are_limited_by_number_and_time(samples: int, seconds: float, *, enough: bool) -> None:
    assert Repetitions(most=5, seconds=10.0, least=3).is_enough(samples, seconds) is enough


def test_each_endpoint_number_is_used_once() -> None:
    endpoints = EndpointNumbers(3)
    assert endpoints.grow(Size(2, 3)) == range(2)
    assert endpoints.grow(Size(4, 3)) == range(2, 4)
    before = [endpoints.numbers(index) for index in range(4)]
    new = endpoints.replace(3, [3, 0])
    assert new == {3: [12, 14], 0: [13]}
    assert endpoints.numbers(3) == [11, 12, 14]
    assert endpoints.numbers(0) == [1, 2, 13]
    assert [endpoints.numbers(index) for index in (1, 2)] == before[1:3]


def test_at_most_all_endpoints_are_replaced() -> None:
    """More could never be in the rules at the same time."""
    endpoints = EndpointNumbers(3)
    endpoints.grow(Size(2, 3))
    new = endpoints.replace(200, [0, 1])
    assert {index: sorted(numbers) for index, numbers in new.items()} == {
        index: endpoints.numbers(index) for index in (0, 1)
    }


def test_spread_takes_the_first_and_the_last_service() -> None:
    assert spread(1000, 3) == [0, 500, 999]
    assert spread(2, 16) == [0, 1]
    assert spread(1, 16) == [0]


def test_copies_of_stored_objects_keep_the_fields_that_the_api_server_set() -> None:
    templates: dict[str, Any] = {
        "IPAddress": {
            "metadata": {"name": "x", "uid": "1"},
            "spec": {"parentRef": {"resource": "services", "name": "x"}},
        },
        "Service": {**service(0), "spec": {**service(0)["spec"], "type": "ClusterIP"}, "status": {"loadBalancer": {}}},
        "EndpointSlice": endpoint_slice(0, [0], "then"),
    }
    found = dict(copies(templates, [7, 8], {7: [70, 71], 8: [80]}, "now"))
    assert list(found) == [key for index in (7, 8) for key in stored_keys(index).values()]
    one = {kind: found[key] for kind, key in stored_keys(7).items()}
    assert one["Service"]["spec"]["clusterIPs"] == [cluster_ip(7)]
    assert one["Service"]["spec"]["type"] == "ClusterIP"
    assert one["IPAddress"]["metadata"]["name"] == cluster_ip(7)
    assert one["IPAddress"]["spec"]["parentRef"] == {"resource": "services", "name": one["Service"]["metadata"]["name"]}
    assert [item["addresses"] for item in one["EndpointSlice"]["endpoints"]] == [[address(70)], [address(71)]]
    assert len({item["metadata"]["uid"] for item in found.values()}) == 6
    assert templates["IPAddress"]["metadata"]["name"] == "x"


def test_cluster_ips_differ() -> None:
    assert len({cluster_ip(index) for index in range(50_000)}) == 50_000


def test_many_services_are_compared_with_legacy_iptables() -> None:
    assert default_proxies(1000) == (KNFT, NFTABLES, IPTABLES)
    assert default_proxies(10_000) == (KNFT, NFTABLES, LEGACY)


def test_cells_have_ratios_to_knft() -> None:
    assert list(cells(RESULTS, START_CPU, SIZE, PROXY_NAMES[:3])) == ["1.00", "0.250 (0.25 times)", "-"]
    assert list(cells(RESULTS, CHANGE_CPU, SIZE, PROXY_NAMES[:3])) == ["2.00", "1 230 (620 times)", "-"]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.01234, 3, "0.0123"),
        (12.34, 3, "12.3"),
        (99.96, 3, "100"),
        (1234.5, 3, "1 230"),
        (617.0, 2, "620"),
        (0, 3, "0.00"),
    ],
)
def test_values_are_rounded_to_significant_digits(value: float, digits: int, text: str) -> None:
    assert rounded(value, digits) == text


def test_table_says_why_a_proxy_was_not_measured() -> None:
    text = markdown(RESULTS)
    assert "| 1 000 × 10 | knft | kube-proxy nftables | kube-proxy iptables |" in text  # noqa: RUF001
    assert "kube-proxy iptables: not ready after 900 s." in text


@pytest.mark.parametrize(("load", "shown"), [(0.5, True), (8.0, False)])
def test_times_of_a_busy_machine_are_left_out(load: float, *, shown: bool) -> None:
    records = (Record(KNFT, SIZE, LOAD, {"of_a_core": load}), Record(KNFT, SIZE, CHANGE, {"in_force_ms": 6.0}))
    text = markdown(Results({}, records))
    assert ("time until in force" in text) is shown
    assert ("Times are left out" in text) is not shown


def test_p99_of_few_samples_is_the_largest() -> None:
    records = tuple(Record(KNFT, SIZE, CHANGE, {"cpu_ms": float(value)}) for value in range(25))
    assert Figure("", "ms", CHANGE, "cpu_ms", p99).value(Results({}, records), KNFT, SIZE) == 24.0


@contextmanager
def _endpoints() -> Iterator[Namespace]:
    """Yield a namespace that has the addresses of all endpoints."""
    with closing(Namespace.create("endpoints")) as namespace:
        with netlink(namespace) as link:
            link.up("lo")
            link.add_local_networks(ENDPOINT_NETWORKS)
        yield namespace


@pytest.mark.kernel
def test_connection_that_the_client_gave_up_is_not_mistaken_for_the_next() -> None:
    """On a busy machine a connection may be complete only after the client has closed it."""
    with _endpoints() as namespace, Connections(namespace, namespace) as connections:
        with namespace.entered():
            socket.create_connection((address(4), TARGET_PORT)).close()
        assert connections.endpoint(address(5), TARGET_PORT, 30.0) == 5
        assert connections.endpoint(address(5), TARGET_PORT + 1, 30.0) is None


@pytest.mark.kernel
def test_connection_with_a_translated_port_is_recognized() -> None:
    """The kernel translates the port of a client if another entry of conntrack already has it."""
    with _endpoints() as namespace:
        rules = f"tcp dport {TARGET_PORT} snat to 10.128.0.1:40000-40100"
        chain = "add chain ip x c { type nat hook postrouting priority 100; }"
        namespace.run(["nft", "-f", "-"], stdin=f"add table ip x\n{chain}\nadd rule ip x c {rules}")
        with Connections(namespace, namespace) as connections:
            assert connections.endpoint(address(5), TARGET_PORT, 30.0) == 5
            assert len(connections.dial([(address(6), TARGET_PORT)])) == 1


@pytest.mark.kernel
def test_refused_connection_is_reported_with_its_frontend_and_leaves_evidence() -> None:
    """The error names the frontend; the evidence has the rule that refuses it, and the entry of another connection."""
    with _endpoints() as namespace:
        chain = "add chain ip x c { type filter hook output priority 0; }"
        rules = f"ip daddr {address(6)} ct state new reject with tcp reset"
        namespace.run(["nft", "-f", "-"], stdin=f"add table ip x\n{chain}\nadd rule ip x c {rules}")
        with Connections(namespace, namespace) as connections:
            assert len(connections.dial([(address(5), TARGET_PORT)])) == 1
            with pytest.raises(ConnectionFailedError, match=rf"^10\.128\.0\.6 port {TARGET_PORT}: Connection refused$"):
                connections.dial([(address(5), TARGET_PORT), (address(6), TARGET_PORT)])
        evidence = kernel_state(namespace)
    assert rules in evidence
    assert f"dst={address(5)}" in evidence


@pytest.mark.parametrize("numbers", [[2688], [2688, 2689, 2700], [5, 70000]])
def test_search_finds_all_addresses(numbers: list[int]) -> None:
    """2688 is 10.128.10.128, whose halves are equal."""
    search = AddressSearch(numbers)
    addresses = [IPv4Address(address(number)).packed for number in numbers]
    search.search(b"\x0a\x80\x0a" + b"".join(addresses[:-1]) + addresses[-1][:3])
    assert search.missing == 1
    search.search(b"\x0a\x80" + addresses[-1])
    assert search.missing == 0


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("watch", "commands"),
    [
        (CommitWatch, ["nft add table ip x; nft add chain ip x c", "nft add rule ip x c ip daddr {} drop"]),
        (CommitWatch, ["iptables -t nat -N c", "iptables -t nat -A c -p tcp -j DNAT --to-destination {}:80"]),
        (XtablesWatch, ["iptables-legacy -w -t nat -N c", "iptables-legacy -w -t nat -A c -p tcp -j DNAT --to {}:80"]),
    ],
    ids=["nft", "iptables", "iptables-legacy"],
)
def test_watch_finds_the_commit_of_a_new_address(watch: type[CommitWatch | XtablesWatch], commands: list[str]) -> None:
    prepare, add = commands
    with closing(Namespace.create("watch")) as namespace:
        namespace.run(["sh", "-ec", prepare])
        with watch(namespace, [5, 900]) as found:
            namespace.run(["sh", "-ec", add.format(address(5))])
            between = time.monotonic()
            namespace.run(["sh", "-ec", add.format(address(6))])
            with pytest.raises(TimeoutError, match="1 endpoints are not in the rules"):
                found.wait(0.01)
            namespace.run(["sh", "-ec", add.format(address(900))])
            assert between < found.wait(30) <= time.monotonic()


def test_cpu_time_contains_children_that_have_ended() -> None:
    """A shell waits for a child that computes, and then for input."""
    busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    with subprocess.Popen(
        ["/bin/sh", "-c", f"sh -c '{busy}'; echo ended; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ended\n"
        assert list(descendants(shell.pid)) == [shell.pid]
        assert cpu_seconds(shell.pid) > 0.01
        assert 0.1 < pss_mib(shell.pid) <= resident_mib(shell.pid)
        shell.kill()
    assert cpu_seconds(shell.pid) == pss_mib(shell.pid) == 0


def test_process_that_computes_is_busy() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "read line; while :; do :; done"], stdin=subprocess.PIPE) as shell:
        wait_until(lambda: not is_busy(shell.pid), "the shell does not wait for input")
        assert shell.stdin is not None
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        wait_until(lambda: is_busy(shell.pid), "the shell does not compute")
        shell.kill()


@pytest.mark.parametrize("path", [README, PERFORMANCE], ids=lambda path: path.name)
def test_documents_have_the_figures_of_the_recorded_run(path: Path) -> None:
    """After a new run: ``python -m tests.cluster.bench.document record``."""
    assert path.read_text() == documents(recorded())[path]
