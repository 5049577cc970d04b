"""``knft lint`` as a command: exit statuses, formats, widths, nodes, and the comparison with earlier manifests."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner, Result

import knft.lint.report as form
from knft.cli.commands import cli
from knft.cli.lint_text import format_report
from knft.errors import KnftError
from tests.lint.objects import TWO_NODES, Object, endpoint, endpoint_slice, node_port, service
from tests.lint.test_broken_clusters import FOLDER as BROKEN
from tests.lint.test_checks import linted
from tests.support.json_schema import schema_of
from tests.support.knft_command import write_manifests

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
    folder.mkdir()
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


def golden_texts(folder: Path) -> dict[str, str]:
    """Return the text of each golden file: a broken cluster, and a change."""
    before, after = write_change(folder)
    reports = {
        "broken": report_of("-f", str(BROKEN / "refused-after-the-restore.yaml")),
        "change": report_of("-f", after, "--against", before),
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
