"""``knft lint`` as a command: exit statuses, formats, widths, nodes, and the comparison with earlier manifests."""

import json
from pathlib import Path

import pytest

import knft.lint.report as form
from knft.cli.lint_text import format_report
from knft.control.messages import SourceStatus
from knft.control.object_reader import ObjectReader
from knft.errors import KnftError, NoDaemonError
from tests.lint.changes import POD_CIDR, RUNNING_OBJECTS, report_of_running, running, write_change
from tests.lint.test_checks import linted
from tests.support.json_schema import schema_of
from tests.support.lint_objects import (
    TWO_NODES,
    Object,
    endpoint,
    endpoint_slice,
    node_port,
    service,
    service_cidr,
)
from tests.support.lint_reports import BROKEN_CLUSTERS, SCHEMA, invoke, report_of, written

GOLDEN = Path(__file__).parent / "golden"
WIDTHS: dict[str, int | None] = {"80": 80, "200": 200, "piped": None}


def golden_texts(folder: Path) -> dict[str, str]:
    """Return the text of each golden file: a broken cluster, a change, and one of the objects of a running knft."""
    before, after = write_change(folder)
    reports = {
        "broken": report_of("-f", str(BROKEN_CLUSTERS / "refused-after-the-restore.yaml")),
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


def test_change_to_consistent_hashing_names_the_shares(tmp_path: Path) -> None:
    """The shares of a table of 1 021 slots are not equal; nobody loses anything."""
    annotations = {"knft.dev/load-balancing": "maglev"}
    folders = [
        written(tmp_path / name, service(annotations=item), endpoint_slice(), *TWO_NODES)
        for name, item in (("before", None), ("after", annotations))
    ]
    change = report_of("-f", folders[1], "--against", folders[0], "--cluster-cidr", "10.244.0.0/16").change
    assert change is not None
    (pods, *_) = (each for each in change.traffic if "masqueraded" not in each.before)
    assert pods.before == "reaches 10.244.1.11:8080, 10.244.2.11:8080 (1/2 each)"
    assert pods.after == "reaches 10.244.1.11:8080 (511/1021); reaches 10.244.2.11:8080 (510/1021)"
    assert not any(each.is_loss for each in change.traffic)


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
    path = str(BROKEN_CLUSTERS / "refused-since-the-last-release.yaml")
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
    text = (BROKEN_CLUSTERS / f"{name}.yaml").read_text()
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
