"""``knft lint`` as a command: exit statuses, formats, widths, nodes, and the comparison with earlier manifests."""

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner, Result
from msgspec import structs

import knft.lint.report as form
from knft.cli.commands import cli
from knft.cli.lint_text import format_report
from knft.config import Config
from knft.control.messages import SourceStatus
from knft.control.object_reader import ObjectReader
from knft.errors import KnftError, NoDaemonError
from knft.source.decode import decode
from tests.lint.objects import (
    TWO_NODES,
    Object,
    endpoint,
    endpoint_slice,
    load_balancer,
    node_port,
    service,
    service_cidr,
)
from tests.lint.test_broken_clusters import FOLDER as BROKEN
from tests.lint.test_checks import linted
from tests.support.json_schema import schema_of
from tests.support.knft_command import write_manifests
from tests.support.memory_daemon import MemoryDaemon

SCHEMA = Path(form.__file__).with_name("report.schema.json")
GOLDEN = Path(__file__).parent / "golden"
WIDTHS: dict[str, int | None] = {"80": 80, "200": 200, "piped": None}


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    """Run the command in this process; raise its errors."""
    done = CliRunner().invoke(cli, ["lint", *arguments], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def written(folder: Path, *objects: Object) -> str:
    """Write objects to a new folder, and return its path."""
    folder.mkdir(parents=True)
    write_manifests(folder, objects)
    return str(folder)


def report_of(*arguments: str) -> form.LintReport:
    """Return the JSON output, which matches the schema."""
    found = invoke(*arguments, "-o", "json").stdout
    jsonschema.validate(json.loads(found), json.loads(SCHEMA.read_text()))
    return msgspec.json.decode(found, type=form.LintReport)


def write_change(folder: Path) -> tuple[str, str]:
    """Write manifests before and after a change: node-2 loses its endpoint, and a port of EndpointSlices its name."""
    web, api = node_port(externalTrafficPolicy="Local"), service("api", clusterIP="10.96.0.11")
    before = (web, endpoint_slice(), api, endpoint_slice(service="api"), *TWO_NODES)
    renamed = endpoint_slice(service="api", ports=[{"name": "web", "port": 8080, "protocol": "TCP"}])
    after = (web, endpoint_slice(endpoint(1)), api, renamed, *TWO_NODES)
    return written(folder / "before", *before), written(folder / "after", *after)


RUNNING_OBJECTS = (
    node_port(trafficDistribution="PreferClose"),
    endpoint_slice(),
    service("api", clusterIP="10.96.0.11"),
    endpoint_slice(service="api"),
    service("dns", clusterIP="10.96.0.12"),
    TWO_NODES[1],
    service_cidr("10.96.0.0/16"),
)
"""Those of the running knft of ``report_of_running``; ``CHANGED`` is a change of one of them."""
CHANGED = node_port(externalTrafficPolicy="Local", trafficDistribution="PreferClose")


def running(*objects: Object, **settings: Any) -> MemoryDaemon:
    """Return a running knft on node-2, whose interfaces have one address."""
    daemon = MemoryDaemon(Config("node-2", cluster_cidrs=("10.244.0.0/16",), **settings), ("192.0.2.12",))
    items = {"apiVersion": "v1", "kind": "List", "items": objects}
    daemon.add(*decode(json.dumps(items).encode()).objects)
    return daemon


def report_of_running(
    folder: Path, *changed: Object, daemon: MemoryDaemon | None = None, flags: tuple[str, ...] = ()
) -> form.LintReport:
    """Return the report about a change of objects of a running knft, whose PID is 4242."""
    daemon = daemon or running(*RUNNING_OBJECTS)
    part = written(folder / "part", *(changed or (CHANGED,)))
    with patch("knft.control.object_reader.ObjectReader", lambda: daemon.reader):
        found = report_of("-f", part, "--against-daemon", *flags)
    own = f"the running knft (pid {os.getpid()})"
    return structs.replace(found, notes=tuple(each.replace(own, "the running knft (pid 4242)") for each in found.notes))


def golden_texts(folder: Path) -> dict[str, str]:
    """Return the text of each golden file: a broken cluster, a change, and one of the objects of a running knft."""
    before, after = write_change(folder)
    reports = {
        "broken": report_of("-f", str(BROKEN / "refused-after-the-restore.yaml")),
        "change": report_of("-f", after, "--against", before),
        "daemon": report_of_running(folder),
    }
    return {
        f"{name}-{width}": format_report(report, limit)
        for name, report in reports.items()
        for width, limit in WIDTHS.items()
    }


def test_text_is_golden(tmp_path: Path) -> None:
    """``python -m tests.lint.write_golden`` writes the files, to be reviewed."""
    texts = golden_texts(tmp_path)
    assert {path.stem: path.read_text() for path in GOLDEN.iterdir()} == texts
    assert all(len(line) <= 80 for name, text in texts.items() if "-80" in name for line in text.splitlines())


def test_schema_is_current() -> None:
    """``python -m tests.lint.write_golden`` updates it."""
    assert json.loads(SCHEMA.read_text()) == schema_of(form.LintReport)


def test_change_names_packets_and_findings(tmp_path: Path) -> None:
    before, after = write_change(tmp_path)
    change = report_of("-f", after, "--against", before).change
    assert change is not None
    losses = {(each.service, each.after): each for each in change.traffic if each.is_loss}
    assert losses.keys() == {("shop/api:http", "is rejected"), ("shop/web:http", "is dropped")}
    assert losses["shop/web:http", "is dropped"].nodes == ("node-2",)
    assert {each.id for each in change.new_findings} == {"port-name-without-slice", "external-policy-local"}
    assert change.gone_findings == ()

    back = invoke("-f", before, "--against", after, "--node", "node-2")
    assert back.exit_code == 0
    first, second, *_ = back.stdout.splitlines()
    assert first == "packets of 2 Services are treated differently on 1 of 1 node; 0 new findings, 2 gone"
    assert second == "no problems in 2 Services"
    same = invoke("-f", before, "--against", before)
    assert same.stdout.startswith("no packet is treated differently on 2 nodes; 0 new findings, 0 gone\n")


def test_missing_cluster_cidr_is_noted(tmp_path: Path) -> None:
    """With policy Local, a node sends packets from pods to an endpoint elsewhere, and drops those from outside."""
    pod_elsewhere = endpoint_slice(endpoint(1))
    before = written(tmp_path / "before", node_port(), pod_elsewhere, *TWO_NODES)
    after = written(tmp_path / "after", node_port(externalTrafficPolicy="Local"), pod_elsewhere, *TWO_NODES)
    arguments = ("-f", after, "--against", before, "--node", "node-2")
    note = (
        "no --cluster-cidr: packets from pods count as packets from outside; give the value of the cluster, "
        "clusterCIDR in kube-proxy's configuration"
    )
    without, given = report_of(*arguments), report_of(*arguments, "--cluster-cidr", "10.244.0.0/16")
    assert (without.notes, given.notes) == ((note,), ())
    assert report_of(*arguments, "--detect-local-mode", "NodeCIDR").notes == ()
    assert report_of("-f", after, "--node", "node-2").notes == ()

    assert without.change is not None
    assert given.change is not None
    assert all(each.is_loss for each in without.change.traffic)
    (pods,) = (each for each in given.change.traffic if not each.is_loss)
    assert (pods.example.split()[0], pods.after) == ("--from=10.244.0.0", "reaches 10.244.1.11:8080")


def test_services_that_only_the_earlier_manifests_have_are_counted(tmp_path: Path) -> None:
    """The operator may have named only the changed Service, and then sees losses of all others."""
    cidr = ("--cluster-cidr", "10.244.0.0/16")
    others = [service(name, clusterIP=f"10.96.0.{number}") for number, name in enumerate(("api", "dns"), 11)]
    all_objects = written(tmp_path / "all", service(), *others, endpoint_slice(), *TWO_NODES)
    changed = written(tmp_path / "changed", service(), endpoint_slice(), *TWO_NODES)
    less = written(tmp_path / "less", service(), others[0], endpoint_slice(), *TWO_NODES)
    note = "2 Services of --against are not in -f and count as deleted"
    assert report_of("-f", changed, "--against", all_objects, *cidr).notes == (note,)
    one = "1 Service of --against is not in -f and counts as deleted"
    assert report_of("-f", less, "--against", all_objects, *cidr).notes == (one,)
    assert report_of("-f", all_objects, "--against", changed, *cidr).notes == ()


def test_partial_manifests_have_only_the_changed_objects(tmp_path: Path) -> None:
    """Other objects stay, so the result is that of all objects after the change."""
    web, api = node_port(), service("api", clusterIP="10.96.0.11")
    slices = (endpoint_slice(), endpoint_slice(service="api"))
    last = service("zoo", clusterIP="10.96.0.12", externalIPs=["203.0.113.9"])
    before = written(tmp_path / "before", web, api, last, *slices, *TWO_NODES)
    changed = node_port(externalTrafficPolicy="Local", externalIPs=["203.0.113.9"])
    after = written(tmp_path / "after", changed, api, last, *slices, *TWO_NODES)
    part = written(tmp_path / "part", changed)
    cidr = ("--cluster-cidr", "10.244.0.0/16")
    found = report_of("-f", part, "--partial", "--against", before, *cidr)
    assert found == report_of("-f", after, "--against", before, *cidr)
    assert found.change is not None
    assert {each.service for each in found.change.traffic} == {"shop/web:http"}
    piped = invoke("-f", "-", "--partial", "--against", before, *cidr, stdin=(Path(part) / "objects.yaml").read_text())
    assert piped.stdout.startswith("packets of 1 Service are treated differently on 2 of 2 nodes; ")


def test_partial_manifests_do_not_replace_objects_of_other_kinds(tmp_path: Path) -> None:
    """An EndpointSlice may have the name of a Service."""
    before = written(tmp_path / "before", service(), endpoint_slice(name="web"), *TWO_NODES)
    part = written(tmp_path / "part", endpoint_slice(endpoint(1), name="web"))
    change = report_of("-f", part, "--partial", "--against", before, *POD_CIDR).change
    assert change is not None
    assert {each.service for each in change.traffic} == {"shop/web:http"}
    assert all(each.after.startswith("reaches 10.244.1.11:8080") for each in change.traffic)


def test_invalid_objects_before_a_partial_change_stay_findings(tmp_path: Path) -> None:
    invalid = service("api", clusterIP="10.96.0.11", ports=[{"name": "http", "port": 70_000}])
    before = written(tmp_path / "before", service(), invalid, endpoint_slice(), *TWO_NODES)
    part = written(tmp_path / "part", service(externalIPs=["203.0.113.9"]))
    found = report_of("-f", part, "--partial", "--against", before, *POD_CIDR)
    assert [each.id for each in found.findings if each.severity == "problem"] == ["invalid-object"]
    assert found.change is not None
    assert [each.id for each in found.change.new_findings] == ["external-ips"]


def test_service_that_gets_a_frontend_of_a_changed_one_is_compared(tmp_path: Path) -> None:
    contested: Object = {"externalIPs": ["203.0.113.9"]}
    heir = service("zoo", clusterIP="10.96.0.12", created="2026-02-01T00:00:00Z", **contested)
    objects = (heir, endpoint_slice(), endpoint_slice(endpoint(2, 12), service="zoo"), *TWO_NODES)
    before = written(tmp_path / "before", service(**contested), *objects)
    part = written(tmp_path / "part", service())
    change = report_of("-f", part, "--partial", "--against", before, *POD_CIDR).change
    assert change is not None
    assert {each.example.partition(" --to=")[2] for each in change.traffic} == {"203.0.113.9:80/tcp"}
    assert all(each.after.startswith("reaches 10.244.2.12:8080") for each in change.traffic)


def test_changed_nodes_and_service_cidrs_concern_all_services(tmp_path: Path) -> None:
    web = node_port(clusterIP="10.97.0.1")
    before = written(tmp_path / "before", web, endpoint_slice(), TWO_NODES[0])
    moved = {**TWO_NODES[0], "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.111"}]}}
    arguments = ("--partial", "--against", before, *POD_CIDR)
    change = report_of("-f", written(tmp_path / "node", moved), *arguments).change
    assert change is not None
    assert "shop/web:http" in {each.service for each in change.traffic}
    change = report_of("-f", written(tmp_path / "cidr", service_cidr("10.97.0.1/32")), *arguments).change
    assert change is not None
    assert change.traffic == ()


def test_messages_about_skipped_objects_are_printed(tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    done = invoke("-f", written(tmp_path / "objects", service(), pod))
    assert done.stderr.endswith("/objects.yaml: Pod skipped (1)\n")


def new_service(name: str, node_port: int = 32769, **spec: Any) -> Object:
    """Return a NodePort Service as a server-side dry run prints it."""
    ports = [{"name": "http", "port": 80, "nodePort": node_port}]
    return service(name, type="NodePort", ports=ports, clusterIP="10.96.0.0", **spec)


CIDRS = service_cidr("10.96.0.0/16", "fd00:10:96::/112")
POD_CIDR = ("--cluster-cidr", "10.244.0.0/16")
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


def test_endpoint_slice_that_moves_to_another_service_changes_both(tmp_path: Path) -> None:
    web, api = service(), service("api", clusterIP="10.96.0.11")
    moving = endpoint_slice(service="api", name="moving")
    before = written(tmp_path / "before", web, api, moving, *TWO_NODES)
    part = written(tmp_path / "part", endpoint_slice(service="web", name="moving"))
    change = report_of("-f", part, "--partial", "--against", before, "--cluster-cidr", "10.244.0.0/16").change
    assert change is not None
    assert {each.service for each in change.traffic} == {"shop/api:http", "shop/web:http"}


def test_running_knft_has_the_objects_before_a_change(tmp_path: Path) -> None:
    """They are those of its node, with its settings; of other nodes it has the names only."""
    found = report_of_running(tmp_path)
    before = written(tmp_path / "before", *RUNNING_OBJECTS, TWO_NODES[0])
    flags = ("--partial", "--node", "node-2", "--cluster-cidr", "10.244.0.0/16")
    expected = report_of("-f", str(tmp_path / "part"), "--against", before, *flags)
    assert found.change is not None
    assert expected.change is not None
    assert found.change.traffic == expected.change.traffic
    assert {(each.service, each.nodes) for each in found.change.traffic} == {("shop/web:http", ("node-2",))}
    assert found.findings == expected.findings
    assert {each.id for each in expected.change.new_findings} == set()
    assert {each.id for each in found.change.new_findings} == {"prefer-close"}
    (note,) = found.notes
    assert note.startswith("the objects before the change are those of the running knft (pid 4242)")
    assert note.endswith("on its node only, and findings about fields that knft does not keep count as new")
    assert report_of_running(tmp_path / "partial", flags=("--partial",)) == found


def test_running_knft_knows_the_addresses_of_its_interfaces(tmp_path: Path) -> None:
    """It may have no Node object."""
    daemon = running(node_port(), endpoint_slice(), nodeport_addresses=("all",))
    change = report_of_running(tmp_path, node_port(externalTrafficPolicy="Local"), daemon=daemon).change
    assert change is not None
    assert {each.example.partition(" --to=")[2] for each in change.traffic} == {"192.0.2.12:30080/tcp"}


def test_notes_tell_that_the_objects_of_the_running_knft_may_be_old(tmp_path: Path) -> None:
    daemon = running(*RUNNING_OBJECTS)
    daemon.source = SourceStatus("API server", "https://192.0.2.10:6443", unwatched_seconds={"services": 300.0})
    _, warning = report_of_running(tmp_path, daemon=daemon).notes
    assert warning.startswith("knft has not watched services since ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--partial",), "--partial requires --against: name the manifests before the change, with all objects"),
        (("--against-daemon", "--against", "x"), "--against cannot be used with --against-daemon; leave out one"),
        (("--against-daemon", "--node", "a"), "--node cannot be used with --against-daemon: the running knft has its"),
    ],
)
def test_contradicting_flags_are_errors(tmp_path: Path, flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(KnftError) as raised:
        invoke("-f", written(tmp_path / "objects", service()), *flags)
    assert str(raised.value).startswith(message)


def test_running_knft_that_does_not_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(path: str) -> bytes:
        raise NoDaemonError(path)

    monkeypatch.setattr("knft.control.object_reader.ObjectReader", lambda: ObjectReader(no_answer))
    with pytest.raises(NoDaemonError):
        invoke("-f", written(tmp_path / "objects", service()), "--against-daemon")


def test_findings_that_existed_before_the_change_are_counted() -> None:
    path = str(BROKEN / "refused-since-the-last-release.yaml")
    note = "note: 1 finding existed before the change; knft lint without --against lists all\n"
    assert note in invoke("-f", path, "--against", path, "--node", "node-1").stdout


def test_change_on_a_node_whose_addresses_are_not_canonical(tmp_path: Path) -> None:
    """As ``knft run``, it reads leading zeros as decimal, and uses no other text."""
    before, after = (service(), endpoint_slice()), (service(externalIPs=["10.1.1.1"]), endpoint_slice())
    addresses = [{"type": "InternalIP", "address": text} for text in ("010.1.1.1", "node-1.example")]
    nodes = ({**TWO_NODES[0], "status": {"addresses": addresses}},)
    change = report_of(
        "-f", written(tmp_path / "after", *after, *nodes), "--against", written(tmp_path / "before", *before, *nodes)
    ).change
    assert change is not None
    assert [each.service for each in change.traffic if each.service] == ["shop/web:http"]


@pytest.mark.parametrize(
    ("name", "status", "line"),
    [
        ("refused-since-the-last-release", 3, "1 problem in 5 Services\n"),
        ("logs-of-node-3-are-missing", 0, "no problems, 1 warning in 5 Services\n"),
    ],
)
def test_first_line_and_status_are_those_of_the_findings(name: str, status: int, line: str) -> None:
    text = (BROKEN / f"{name}.yaml").read_text()
    done = invoke("-f", "-", stdin=text)
    assert (done.exit_code, done.stdout.startswith(line)) == (status, True)


def test_missing_objects_leave_checks_out(tmp_path: Path) -> None:
    alone = written(tmp_path / "alone", node_port(externalTrafficPolicy="Local"))
    assert invoke("-f", alone).stdout == (
        "no problems in 1 Service\n"
        "note: there are no Node objects: policy Local, source ranges, NodePort addresses and zones were not checked\n"
        "note: there are no EndpointSlices: endpoints were not checked\n"
    )
    local = written(tmp_path / "local", node_port(externalTrafficPolicy="Local"), endpoint_slice(endpoint(1)))
    assert report_of("-f", local).findings == ()
    (found,) = report_of("-f", local, "--node", "node-7", "--node-ip", "192.0.2.17").findings
    assert (found.id, found.severity, found.nodes) == ("external-policy-local", "problem", ("node-7",))


def test_one_node_of_several_is_checked_alone(tmp_path: Path) -> None:
    objects = (node_port(externalTrafficPolicy="Local"), endpoint_slice(endpoint(1)), *TWO_NODES)
    path = written(tmp_path / "two", *objects)
    assert report_of("-f", path, "--node", "node-1").findings == ()
    (found,) = report_of("-f", path, "--node", "node-2").findings
    assert (found.severity, found.nodes) == ("warning", ("node-2",))
    (note,) = report_of("-f", path, "--node", "node-3").notes
    assert note == "--node: there is no Node 'node-3'; the Nodes are node-1, node-2"


def test_load_balancer_that_tests_health_needs_an_endpoint_on_some_node() -> None:
    balancer = service(
        type="LoadBalancer", ips=["203.0.113.1"], externalTrafficPolicy="Local", healthCheckNodePort=31000
    )
    some = (balancer, endpoint_slice(endpoint(1)), *TWO_NODES)
    assert linted(*some).findings == ()
    assert linted(*some, node="node-2").findings == ()
    (found, _) = linted(balancer, endpoint_slice(endpoint(3)), *TWO_NODES).findings
    assert (found.id, found.severity) == ("external-policy-local", "problem")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-f", "/nonexistent"), "/nonexistent: No such file or directory"),
        (("-f", "-", "--node", " "), "--node: the name is empty"),
        (("-f", "-", "--node-ip", "192.0.2.1"), "--node-ip requires --node"),
        (("-f", "-", "--against", "-"), "-f and --against cannot both be standard input"),
        (("-f", "-", "--cluster-cidr", "x"), "--cluster-cidr"),
    ],
)
def test_bad_input_is_an_error(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(KnftError) as raised:
        invoke(*arguments)
    assert message in str(raised.value)
