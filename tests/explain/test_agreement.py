"""``--live``: which packets of an explanation the kernel's rules treat differently, and what was compared."""

import pytest
from msgspec.structs import replace

from knft.config import Config
from knft.explain.explain import explain
from knft.explain.frontend_index import FrontendIndex, index_of_rules
from knft.explain.query import parse_query
from knft.explain.sources import NodeRules, ObjectSource
from knft.interpret.rules import RuleSet
from knft.model.objects import EndpointSlice, Service
from tests.support.explain_sources import CONFIG, NODE_IP, of_objects, rules_of, served
from tests.support.kube_objects import ingress, service, service_port

PORTS = (service_port(), service_port(9090, "metrics"))
BALANCED = served(
    "ranges",
    "10.96.0.42",
    type="LoadBalancer",
    ports=(service_port(node_port=30042),),
    load_balancer_source_ranges=("198.51.100.0/24",),
    ingresses=(ingress("203.0.113.200"),),
)
DUAL = served("dual", "10.96.0.43", ports=PORTS)
OTHER = served("other", "10.96.0.44")
KERNEL = rules_of(*BALANCED, *DUAL, *OTHER)
SAME = "the kernel's rules treat these packets in the same way"


def _kernel_line(what: str, source: ObjectSource, kernel: NodeRules = KERNEL) -> str:
    return "; ".join(each.text for each in explain(parse_query(what), source, kernel).kernel)


def _extra(frontend: str, port: str) -> str:
    return f"the kernel also has frontend {frontend} of default/{port}"


def _different(frontend: str) -> str:
    return f"the kernel's rules treat packets to {frontend} differently"


@pytest.mark.parametrize(
    "what",
    [
        "ranges",
        "ranges:80",
        "dual:metrics",
        "10.96.0.42",
        "203.0.113.200:80",
        ":30042",
        f"{NODE_IP}:30042",
        "10.244.2.11",
        "10.244.2.11:8081",
        "10.96.9.9:80",
    ],
)
def test_equal_rules_are_compared(what: str) -> None:
    assert _kernel_line(what, of_objects(*BALANCED, *DUAL, *OTHER)) == SAME


@pytest.mark.parametrize(
    "what", ["ranges", "10.96.0.42", "203.0.113.200", "203.0.113.200:80/tcp", ":30042", "ranges:80"]
)
def test_service_of_the_kernel_alone_is_found_by_each_name(what: str) -> None:
    found = _kernel_line(what, of_objects(*DUAL, *OTHER))
    for frontend in ("10.96.0.42:80/tcp", "203.0.113.200:80/tcp", ":30042/tcp"):
        assert _extra(frontend, "ranges:http") in found


@pytest.mark.parametrize(
    "what", ["dual", "dual:metrics", "dual:9090", "10.96.0.43", "10.96.0.43:9090", "10.244.2.11:8081"]
)
def test_port_of_the_kernel_alone_is_found(what: str) -> None:
    only_http = served("dual", "10.96.0.43")
    assert _kernel_line(what, of_objects(*only_http, *OTHER)) == _extra("10.96.0.43:9090/tcp", "dual:metrics")


def test_port_of_the_manifests_alone_is_different() -> None:
    kernel = rules_of(*served("dual", "10.96.0.43"))
    assert _kernel_line("dual", of_objects(*DUAL), kernel) == _different("10.96.0.43:9090/tcp")
    assert _kernel_line("dual:http", of_objects(*DUAL), kernel) == SAME


def test_changed_port_is_found_by_its_old_number() -> None:
    changed = served("dual", "10.96.0.43", ports=(service_port(), service_port(9091, "metrics")))
    found = _kernel_line("dual:9090", of_objects(*changed))
    assert _extra("10.96.0.43:9090/tcp", "dual:metrics") in found
    assert _different("10.96.0.43:9091/tcp") in found


def test_endpoint_of_the_kernel_alone_is_different() -> None:
    no_endpoint = replace(DUAL[1], endpoints=())
    for what in ("10.244.2.11", "10.244.2.11:8081"):
        assert _different("10.96.0.43:9090/tcp") in _kernel_line(what, of_objects(DUAL[0], no_endpoint))


@pytest.mark.parametrize("what", ["headless", "nothing", "10.96.9.9", "10.244.9.9"])
def test_nothing_to_compare_is_not_called_the_same(what: str) -> None:
    source = of_objects(*OTHER, service("headless", cluster_ip="None"))
    assert _kernel_line(what, source, rules_of(*OTHER)) == f"the kernel's rules have no frontend for {what} either"


ALL_ADDRESSES = replace(CONFIG, nodeport_addresses=("all",))


@pytest.mark.parametrize("what", [":30042", "10.0.0.5:30042", "ranges"])
@pytest.mark.parametrize("configs", [(CONFIG, ALL_ADDRESSES), (ALL_ADDRESSES, CONFIG)])
def test_node_ports_are_compared_at_the_addresses_of_both_sides(what: str, configs: tuple[Config, Config]) -> None:
    """One side accepts NodePorts at all addresses, the other at the primary one."""
    source, kernel = configs
    own = ("10.0.0.5", "10.0.0.30")
    found = _kernel_line(
        what, of_objects(*BALANCED, config=source, own=own), rules_of(*BALANCED, config=kernel, own=own)
    )
    assert found == _different(":30042/tcp at 10.0.0.5 and 10.0.0.30")
    assert (
        _kernel_line(what, of_objects(*BALANCED, config=kernel, own=own), rules_of(*BALANCED, config=kernel, own=own))
        == SAME
    )


def test_families_are_compared_where_only_the_kernel_has_frontends() -> None:
    dual_stack = {
        "ip_families": ("IPv4", "IPv6"), "cluster_ips": ("10.96.0.44", "fd00:10:96::44")
    }  # fmt: skip
    kernel = rules_of(*served("other", "10.96.0.44", **dual_stack))
    assert _kernel_line("other", of_objects(*OTHER), kernel) == _extra("[fd00:10:96::44]:80/tcp", "other:http")


def test_only_the_ports_of_the_query_are_compared() -> None:
    """Another Service's difference is no difference of these packets."""
    objects: tuple[Service | EndpointSlice, ...] = (*DUAL, *OTHER)
    assert _kernel_line("dual", of_objects(*objects)) == SAME
    assert _kernel_line("10.96.0.44:80", of_objects(*objects)) == SAME


def test_rules_of_the_kernel_are_indexed_once_for_each_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ports a Service has: indexing takes a time proportional to all Services."""
    ports = tuple(service_port(1000 + number, f"p{number}") for number in range(10))
    source, kernel = of_objects(*served("many", "10.96.0.9", ports=ports)), rules_of(*OTHER)
    versions: list[int] = []

    def counted(rules: RuleSet) -> FrontendIndex:
        versions.append(rules.version)
        return index_of_rules(rules)

    monkeypatch.setattr("knft.explain.sources.index_of_rules", counted)
    explain(parse_query("many"), source, kernel)
    assert sorted(versions) == [4, 6]
