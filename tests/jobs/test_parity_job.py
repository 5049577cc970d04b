"""Tests of the parts of ``tests.parity`` that need neither kube-proxy nor a kernel."""

import json
import subprocess
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import asdict

from tests.cluster.desired import desired_objects
from tests.parity import __main__ as job
from tests.parity.exceptions import (
    ExceptionUses,
)
from tests.parity.faults import FAULTS
from tests.parity.packets import packets
from tests.parity.random_cluster import Cluster, Endpoint, History, Service, Settings, Slice, manifests, random_history
from tests.parity.seed_run import Problem, problems_of
from tests.parity.shrink import shrink, smaller

SEEDS = range(60)
DEFAULT_SEEDS = range(1, 6)


def _values(field: str) -> Counter[Any]:
    services = (s for seed in SEEDS for cluster in random_history(seed, 2).clusters for s in cluster.services)
    return Counter(getattr(service, field) for service in services)


def test_seed_gives_the_same_history_each_time() -> None:
    assert random_history(7, 3) == random_history(7, 3)
    assert random_history(7, 3) != random_history(8, 3)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("type", {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}),
        ("families", {("IPv4",), ("IPv6",), ("IPv4", "IPv6"), ("IPv6", "IPv4")}),
        ("internal_policy", {"Cluster", "Local"}),
        ("external_policy", {"Cluster", "Local"}),
        ("ingress", {"", "VIP", "Proxy"}),
        ("affinity_seconds", {0, 600, 3600, 10800, 86400}),
        ("has_external_ips", {True, False}),
        ("is_headless", {True, False}),
        ("other_proxy", {True, False}),
    ],
)
def test_histories_have_all_values_of_a_field(field: str, values: set[Any]) -> None:
    assert set(_values(field)) == values


def test_histories_have_ranges_udp_hints_terminating_endpoints_and_several_slices() -> None:
    services = [s for seed in SEEDS for cluster in random_history(seed, 2).clusters for s in cluster.services]
    endpoints = [endpoint for service in services for one in service.slices for endpoint in one.endpoints]
    assert any(service.ranges for service in services)
    assert any("dns" in service.ports for service in services)
    assert any(len([one for one in service.slices if one.family == "IPv4"]) > 1 for service in services)
    assert any(endpoint.zone_hint for endpoint in endpoints)
    assert any(endpoint.node_hint for endpoint in endpoints)
    assert any(endpoint.terminating and endpoint.serving for endpoint in endpoints)
    assert any(not endpoint.ready and not endpoint.terminating for endpoint in endpoints)


def test_default_seeds_delete_and_create_services_and_have_slices_with_hints_of_some_endpoints() -> None:
    histories = [random_history(seed, 3) for seed in DEFAULT_SEEDS]
    changes = [pair for history in histories for pair in pairwise(history.clusters)]
    numbers = [tuple({service.number for service in one.services} for one in pair) for pair in changes]
    assert any(before - after for before, after in numbers)
    assert any(after - before for before, after in numbers)
    services = [s for history in histories for cluster in history.clusters for s in cluster.services]
    hints = [{bool(e.zone_hint) for e in one.endpoints} for service in services for one in service.slices]
    assert {True, False} in hints
    assert {True} in hints
    assert len({service.affinity_seconds for service in services}) > 3


def test_histories_create_services_that_were_deleted_before() -> None:
    seen = [
        [{service.number for service in cluster.services} for cluster in random_history(seed, 4).clusters]
        for seed in SEEDS
    ]
    assert any(
        number in first and number not in middle and number in last
        for first, middle, last in (numbers[:3] for numbers in seen)
        for number in first
    )


def test_objects_have_distinct_names_addresses_and_ports() -> None:
    for seed in SEEDS:
        for cluster in random_history(seed, 2).clusters:
            objects = manifests(cluster)
            assert len(desired_objects(objects, with_service_cidr=False)) == len(objects)
            ports = [port.get("nodePort") for item in objects for port in item.get("spec", {}).get("ports", ())]
            given = [port for port in ports if port]
            assert len(given) == len(set(given))
            assert packets(cluster)


def test_shrinking_keeps_only_what_differs() -> None:
    """A fault that concerns one terminating endpoint leaves one Service with one slice and this endpoint."""
    history = _with_terminating_endpoint()

    def differs(candidate: History) -> bool:
        services = candidate.clusters[-1].services
        return any(e.terminating for service in services for one in service.slices for e in one.endpoints)

    (cluster,) = shrink(history, differs, max_runs=500).clusters
    (service,) = cluster.services
    (one,) = service.slices
    (endpoint,) = one.endpoints
    assert endpoint.terminating
    assert asdict(service) == asdict(
        Service(service.number, families=service.families, ports=service.ports, slices=service.slices)
    )
    assert len(service.families) == len(service.ports) == 1


def _with_terminating_endpoint() -> History:
    one = Slice("IPv4", 8080, ("dns", "http"), (Endpoint("local-1"), Endpoint("node", ready=False, terminating=True)))
    other = Slice("IPv6", 8080, ("dns",), (Endpoint("remote-1"),))
    service = Service(
        1, "LoadBalancer", ports=("dns", "http"), slices=(other, one), affinity_seconds=60, ranges=("::/0",)
    )
    clusters = (Cluster((service,)), Cluster((service, Service(2, slices=(other,)))))
    return History(Settings(masquerade_all=True), clusters)


def test_shrinking_stops_after_the_given_number_of_runs() -> None:
    tried: list[History] = []

    def differs(candidate: History) -> bool:
        tried.append(candidate)
        return False

    history = _with_terminating_endpoint()
    assert shrink(history, differs, max_runs=3) == history
    assert len(tried) == 3


def test_smaller_histories_differ_from_the_history_and_can_be_written() -> None:
    history = random_history(3, 2)
    for candidate in smaller(history):
        assert candidate != history
        for cluster in candidate.clusters:
            json.dumps(manifests(cluster))


def test_every_fault_replaces_an_existing_function() -> None:
    for fault in FAULTS.values():
        assert callable(getattr(fault.module, fault.function))


def test_shrinking_keeps_a_deleted_service() -> None:
    one = Slice("IPv4", 8080, ("http",), (Endpoint("local-1"),))
    service, other = Service(1, slices=(one,), affinity_seconds=86400), Service(2, slices=(one,))
    history = History(Settings(), (Cluster((service,)), Cluster((service, other)), Cluster((other,))))

    def differs(candidate: History) -> bool:
        numbers = [{service.number for service in cluster.services} for cluster in candidate.clusters]
        return any(1 in before and 1 not in after for before, after in pairwise(numbers))

    assert [
        [service.number for service in cluster.services] for cluster in shrink(history, differs, max_runs=100).clusters
    ] == [[1], []]


def _fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [AssertionError("knft exited with status 1"), subprocess.CalledProcessError(1, ["nft"])]
)
def test_failing_proxy_is_a_problem_of_the_seed(error: Exception) -> None:
    error.add_note("the last lines of its log")
    problems: list[Problem] = []
    with problems_of("program", 2, problems):
        _fail(error)
    ((comparison, change, text),) = problems
    assert (comparison, change) == ("program", 2)
    assert str(error) in text
    assert text.endswith("the last lines of its log")


def test_error_of_the_test_itself_is_no_problem_of_the_seed() -> None:
    with pytest.raises(TypeError), problems_of("packets", 0, []):
        _fail(TypeError())


def test_command_of_a_seed_names_the_comparison_and_the_fault() -> None:
    assert job.command_of(7, 3, 6, "program") == (
        "make test-parity ARGS='--seed 7 --changes 3 --services 6 --only program'"
    )
    assert job.command_of(7, 3, 6, "packets", "hints").endswith("--only packets --broken hints'")


class _FakeTestbed:
    """A testbed on which every history has the same problems."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = list(problems)
        self.comparisons: list[tuple[str, ...]] = []
        self.uses = ExceptionUses()
        self.nodes: Any = SimpleNamespace(knft=SimpleNamespace(command=("knft",)), timeout=0.0)

    def run(self, _: History, comparisons: tuple[str, ...]) -> list[Problem]:
        self.comparisons.append(comparisons)
        return self.problems


@pytest.mark.parametrize(
    ("words", "is_checked"),
    [
        ([], True),
        (["--seeds", "6"], True),
        (["--seed", "1"], False),
        (["--seeds", "4"], False),
        (["--services", "3"], False),
        (["--only", "packets"], False),
        (["--broken", "hints"], False),
    ],
)
def test_default_seeds_have_to_need_every_exception(words: list[str], *, is_checked: bool) -> None:
    testbed: Any = _FakeTestbed()
    found = job._run_seeds(testbed, job._arguments(words))
    assert ("conntrack entry: other host" in found) == ("metric go_* beside mode iptables" in found) == is_checked
    assert bool(found) == is_checked


def test_seed_on_which_knft_exits_is_printed_with_its_command_and_shrunk(capsys: pytest.CaptureFixture[str]) -> None:
    testbed: Any = _FakeTestbed(Problem("program", 1, "AssertionError: knft exited with status 1"))
    assert job._run_seeds(testbed, job._arguments(["--seed", "3", "--shrink-runs", "2"])) == "1 of 1 seeds differ"
    printed = capsys.readouterr().out
    assert "knft exited with status 1" in printed
    assert "make test-parity ARGS='--seed 3 --changes 3 --services 6 --only program'" in printed
    assert testbed.comparisons[1:] == [("program",)] * 2


def test_fault_that_stops_knft_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    testbed: Any = _FakeTestbed(Problem("program", 0, "AssertionError: knft exited with status 1"))
    given = job._arguments(["--shrink-runs", "1", "--faults", "hints"])
    assert job._run_faults(testbed, given) == "fault 'hints' is not found"
    assert "--only program --broken hints'" in capsys.readouterr().out
    testbed.problems = [Problem("packets", 0, "another endpoint")]
    assert job._run_faults(testbed, given) == ""
