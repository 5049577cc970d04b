"""Addresses and ports of new Services that no API server has allocated yet."""

from pathlib import Path
from typing import Any

import pytest

from tests.lint.changes import POD_CIDR, report_of_running
from tests.support.lint_objects import (
    TWO_NODES,
    Object,
    endpoint_slice,
    load_balancer,
    service,
    service_cidr,
)
from tests.support.lint_reports import invoke, report_of, written


def new_service(name: str, node_port: int = 32769, **spec: Any) -> Object:
    """Return a NodePort Service as a server-side dry run prints it."""
    ports = [{"name": "http", "port": 80, "nodePort": node_port}]
    return service(name, type="NodePort", ports=ports, clusterIP="10.96.0.0", **spec)


CIDRS = service_cidr("10.96.0.0/16", "fd00:10:96::/112")
NOT_KNOWN = (
    "new Service shop/{}: its cluster IP and NodePort are not known before it is created "
    "(10.96.0.0 and 32769 are placeholders); a controller makes its EndpointSlices after it is created"
)


def test_placeholders_of_new_services_are_a_note(tmp_path: Path) -> None:
    """A server-side dry run gives each of them the same cluster IP and NodePort."""
    before = written(tmp_path / "before", service(), endpoint_slice(), CIDRS, *TWO_NODES)
    part = written(tmp_path / "part", new_service("newa"), new_service("newb"))
    arguments = ("-f", part, "--partial", "--against", before, *POD_CIDR)
    found = report_of(*arguments)
    assert found.notes == (NOT_KNOWN.format("newa"), NOT_KNOWN.format("newb"))
    assert (found.findings, found.problems) == ((), 0)
    assert found.change is not None
    assert found.change.traffic == ()
    done = invoke(*arguments)
    assert done.exit_code == 0
    assert done.stdout == (
        "no packet is treated differently on 2 nodes; 0 new findings, 0 gone\n"
        "no problems in 3 Services\n"
        f"note: {NOT_KNOWN.format('newa')}\n"
        f"note: {NOT_KNOWN.format('newb')}\n"
    )
    whole = written(tmp_path / "whole", service(), endpoint_slice(), new_service("newa"), new_service("newb"), CIDRS)
    captured = report_of("-f", whole, "--against", before, *POD_CIDR, "--node", "node-1")
    assert {"contested-frontend", "service-without-slices"} <= {each.id for each in captured.findings}


def test_placeholders_compared_with_the_running_knft(tmp_path: Path) -> None:
    found = report_of_running(tmp_path, new_service("newa"), new_service("newb"))
    assert found.notes[1:] == (NOT_KNOWN.format("newa"), NOT_KNOWN.format("newb"))
    assert found.change is not None
    assert (found.change.traffic, found.change.new_findings) == ((), ())


def test_known_addresses_of_new_services_are_checked(tmp_path: Path) -> None:
    """Also their NodePorts that the manifests have, and EndpointSlices that the change has."""
    web = service(externalIPs=["203.0.113.9"])
    before = written(tmp_path / "before", web, endpoint_slice(), CIDRS, *TWO_NODES)
    slices = [endpoint_slice(service=name) for name in ("newa", "newb")]
    newa = new_service("newa", 30080, externalIPs=["203.0.113.9"], created="2026-02-01T00:00:00Z")
    newc = load_balancer("203.0.113.11", clusterIP="10.96.0.0")
    newc["metadata"]["name"] = "newc"
    slices.append(endpoint_slice(service="newc"))
    part = written(tmp_path / "part", newa, new_service("newb", externalIPs=["203.0.113.10"]), newc, *slices)
    arguments = ("-f", part, "--partial", "--against", before, *POD_CIDR)
    found = report_of(*arguments)
    assert found.notes == (
        "new Service shop/newa: its cluster IP is not known before it is created (10.96.0.0 is a placeholder)",
        NOT_KNOWN.format("newb").partition(";")[0],
        "new Service shop/newc: its cluster IP is not known before it is created (10.96.0.0 is a placeholder)",
    )
    (contested,) = (each for each in found.findings if each.severity == "problem")
    assert (contested.id, contested.object) == ("contested-frontend", "shop/newa")
    assert contested.what.startswith("frontend 203.0.113.9:80/tcp ")
    assert found.change is not None
    examples = {each.service: each.example.partition(" --to=")[2] for each in found.change.traffic}
    assert examples == {
        "shop/newa:http": "192.0.2.11:30080/tcp",
        "shop/newb:http": "203.0.113.10:80/tcp",
        "shop/newc:http": "203.0.113.11:80/tcp",
    }
    assert invoke(*arguments).exit_code == 3


def test_placeholder_node_port_of_a_changed_service(tmp_path: Path) -> None:
    """A Service that becomes one of type NodePort keeps its cluster IP."""
    before = written(tmp_path / "before", service(), endpoint_slice(), CIDRS, *TWO_NODES)
    changed = service(type="NodePort", ports=[{"name": "http", "port": 80, "nodePort": 32769}])
    part = written(tmp_path / "part", changed, new_service("newa"))
    found = report_of("-f", part, "--partial", "--against", before, *POD_CIDR)
    note = "changed Service shop/web: its NodePort is not known before it is changed (32769 is a placeholder)"
    assert found.notes == (NOT_KNOWN.format("newa"), note)
    assert (found.problems, found.change and found.change.traffic) == (0, ())
    again = written(tmp_path / "again", changed, endpoint_slice(), CIDRS, *TWO_NODES)
    assert report_of("-f", written(tmp_path / "same", changed), "--partial", "--against", again, *POD_CIDR).notes == ()


def test_requested_node_ports_of_a_changed_service_are_checked(tmp_path: Path) -> None:
    """Although the second one is what the API server could have allocated after the first one."""
    before = written(tmp_path / "before", service(), endpoint_slice(), CIDRS, *TWO_NODES)
    ports = [{"name": name, "port": port, "nodePort": 30000 + port} for name, port in (("http", 80), ("other", 81))]
    slices = endpoint_slice(ports=[{"name": name, "port": 8080, "protocol": "TCP"} for name in ("http", "other")])
    part = written(tmp_path / "part", service(type="NodePort", ports=ports), slices)
    found = report_of("-f", part, "--partial", "--against", before, *POD_CIDR)
    assert found.notes == ()
    assert found.change is not None
    node_ports = {each.example.rpartition(":")[2] for each in found.change.traffic if each.service == "shop/web:other"}
    assert "30081/tcp" in node_ports


def test_service_that_was_of_type_external_name_has_placeholders_too(tmp_path: Path) -> None:
    external = service("newa", type="ExternalName", externalName="web.example", clusterIP="")
    before = written(tmp_path / "before", external, endpoint_slice(), CIDRS, *TWO_NODES)
    part = written(tmp_path / "part", new_service("newa"))
    found = report_of("-f", part, "--partial", "--against", before, *POD_CIDR)
    assert found.notes == (NOT_KNOWN.format("newa"),)
    assert found.problems == 0
    assert found.change is not None
    assert found.change.traffic == ()


def test_placeholder_health_check_ports_are_not_contested(tmp_path: Path) -> None:
    before = written(tmp_path / "before", service(), endpoint_slice(), CIDRS, *TWO_NODES)
    spec: Object = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32770}
    changed = [new_service(name) | {"spec": new_service(name)["spec"] | spec} for name in ("newa", "newb")]
    found = report_of("-f", written(tmp_path / "part", *changed), "--partial", "--against", before, *POD_CIDR)
    assert (len(found.notes), {each.id for each in found.findings}) == (2, {"load-balancer-without-address"})


@pytest.mark.parametrize(
    "spec", [{"clusterIP": "None"}, {"type": "ExternalName", "externalName": "web.example", "clusterIP": ""}]
)
def test_new_services_without_rules_have_no_note(tmp_path: Path, spec: Object) -> None:
    before = written(tmp_path / "before", service(), endpoint_slice(), CIDRS, *TWO_NODES)
    part = written(tmp_path / "part", service("newa", **spec))
    assert report_of("-f", part, "--partial", "--against", before, *POD_CIDR).notes == ()


def test_new_service_may_have_endpoint_slices_before_the_change(tmp_path: Path) -> None:
    before = written(tmp_path / "before", endpoint_slice(service="newa"), CIDRS, *TWO_NODES)
    part = written(tmp_path / "part", new_service("newa"))
    found = report_of("-f", part, "--partial", "--against", before, *POD_CIDR)
    assert found.notes == (NOT_KNOWN.format("newa").partition(";")[0],)


def test_new_service_without_selector_needs_endpoint_slices(tmp_path: Path) -> None:
    before = written(tmp_path / "before", service(), endpoint_slice(), CIDRS, *TWO_NODES)
    part = written(tmp_path / "part", new_service("newa", selector=None))
    found = report_of("-f", part, "--partial", "--against", before, *POD_CIDR)
    assert [(each.id, each.object) for each in found.findings] == [("service-without-slices", "shop/newa")]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"clusterIPs": ["10.96.0.0", "fd00:10:96::"], "ipFamilies": ["IPv4", "IPv6"]},
            "cluster IPs and NodePort are not known before it is created (10.96.0.0, fd00:10:96:: and 32769 ",
        ),
        (
            {
                "ports": [
                    {"name": name, "port": port, "nodePort": 32689 + port} for name, port in (("a", 80), ("b", 81))
                ]
            },
            "cluster IP and NodePorts are not known before it is created (10.96.0.0, 32769 and 32770 ",
        ),
        (
            {
                "ports": [
                    {"name": name, "port": port, "nodePort": 30000 + port} for name, port in (("a", 80), ("b", 81))
                ]
            },
            "cluster IP and NodePort are not known before it is created (10.96.0.0 and 30081 ",
        ),
        (
            {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 32770},
            "cluster IP, NodePort and health check port are not known before it is created (10.96.0.0, 32769 and 32770",
        ),
    ],
)
def test_placeholders_are_those_of_the_allocators(tmp_path: Path, spec: Object, text: str) -> None:
    before = written(tmp_path / "before", service(), endpoint_slice(), CIDRS, *TWO_NODES)
    part = written(tmp_path / "part", new_service("newa") | {"spec": new_service("newa")["spec"] | spec})
    found = report_of("-f", part, "--partial", "--against", before, *POD_CIDR)
    assert found.notes[0].startswith(f"new Service shop/newa: its {text}")
    assert found.problems == 0
