"""Tests of the parts of ``tests.e2e`` that need no cluster."""

import io
import json
import re
import tarfile
from pathlib import Path
from typing import IO

import pytest

from deploy.image import layer, oci
from deploy.programs.build import Programs
from deploy.programs.errors import SetupError
from tests.e2e import specs
from tests.e2e.__main__ import selection
from tests.e2e.command import Run, Selection, ginkgo_command
from tests.e2e.image import image_configs
from tests.e2e.results import Outcome, Result, parse_junit, summary
from tests.support.job_cluster import job_cluster

_REPORT = """<testsuites><testsuite name="Kubernetes e2e suite">
<testcase name="[It] [sig-network] Services should serve" status="passed" time="1.5"/>
<testcase name="[It] [sig-network] Services should fail" status="failed" time="2">
    <failure message="timed out&#xA;  waiting" type="failed">stack trace</failure>
</testcase>
<testcase name="[It] [sig-network] Traffic Distribution" status="skipped" time="0.2">
    <skipped message="skipped - needs 3 zones"/>
</testcase>
<testcase name="[It] [sig-node] Pods should run" status="skipped" time="0"><skipped message="skipped"/></testcase>
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="3"/>
</testsuite></testsuites>"""
_RESULTS = [
    Result("[sig-network] Services should fail", Outcome.FAILED, 2.0, "timed out waiting"),
    Result("[sig-network] Services should serve", Outcome.PASSED, 1.5),
    Result("[sig-network] Traffic Distribution", Outcome.SKIPPED, 0.2, "needs 3 zones"),
]


def test_junit_report_has_specs_that_ran_or_skipped_themselves() -> None:
    assert parse_junit(_REPORT) == _RESULTS


def test_failure_before_the_specs_is_a_result() -> None:
    report = '<testsuite><testcase name="[SynchronizedBeforeSuite]"><error message="no nodes"/></testcase></testsuite>'
    assert parse_junit(report) == [Result("[SynchronizedBeforeSuite]", Outcome.FAILED, 0.0, "no nodes")]


def test_summary_ends_with_failures_and_totals() -> None:
    assert list(summary(_RESULTS)) == [
        "passed     1.5 s  [sig-network] Services should serve",
        "skipped    0.2 s  [sig-network] Traffic Distribution",
        "    needs 3 zones",
        "failed     2.0 s  [sig-network] Services should fail",
        "    timed out waiting",
        "1 passed, 1 failed, 1 skipped",
    ]


def test_command_gives_ginkgo_the_selection_and_the_tests_the_cluster() -> None:
    run = Run(Selection("Services", "Slow"), "/keys/admin", Path("/report"), processes=4, nodes=2)
    command = ginkgo_command(Programs(Path("/programs"), "v1.36.3"), run)
    ginkgo, tests = command[: command.index("--")], command[command.index("--") + 1 :]
    assert (ginkgo[0], ginkgo[-1]) == ("/programs/ginkgo", "/programs/e2e.test")
    assert {"--procs=4", "--focus=Services", "--skip=Slow"} <= set(ginkgo)
    assert {"--kubeconfig=/keys/admin", "--provider=skeleton", "--num-nodes=2", "--report-dir=/report"} <= set(tests)


@pytest.mark.parametrize(
    ("name", "is_run", "is_in_subset"),
    [
        ("Services should serve a basic endpoint from pods [Conformance]", True, True),
        ("Services should have session affinity timeout work for NodePort service [LinuxOnly]", True, False),
        ("Services should work after restarting apiserver [Disruptive]", False, False),
        ("Networking Granular Checks: Services should function for pod-Service: http", True, False),
        ("Networking Granular Checks: Services should function for pod-Service: sctp", False, False),
        ("[Feature:IPv6DualStack] should have at least one dual-stack node", True, False),
        ("LoadBalancers [Feature:LoadBalancer] should handle load balancer cleanup finalizer", False, False),
        ("Netpol API should support creating NetworkPolicy API operations", True, False),
        ("Netpol NetworkPolicy should support allow-all policy [Feature:NetworkPolicy]", False, False),
        ("IngressClass API should support creating IngressClass API operations [Conformance]", True, False),
    ],
)
def test_default_selection_has_specs_about_services(name: str, is_run: bool, is_in_subset: bool) -> None:  # noqa: FBT001
    def selects(selected: Selection) -> bool:
        text = f"[sig-network] {name}"
        return bool(re.search(selected.focus, text)) and not re.search(selected.skip, text)

    assert selects(selection(None, "", subset=False)) == is_run
    assert selects(selection(None, "", subset=True)) == is_in_subset


def test_options_replace_the_focus_and_add_to_the_skipped_specs() -> None:
    selected = selection("DNS", "hostname", subset=False)
    assert selected.focus == "DNS"
    assert selected.skip.endswith("|hostname")
    assert all(skipped.pattern in selected.skip for skipped in specs.SKIPPED)


def test_load_balancers_select_all_their_specs_but_those_with_another_reason() -> None:
    names = specs.NAMES.read_text().splitlines()
    selected = selection(None, "", subset=False, load_balancers=True)
    added = [name for name in names if re.search(selected.focus, name) and not re.search(selected.skip, name)]
    assert len(added) == 13
    assert all("[Feature:LoadBalancer]" in name for name in added)


def test_each_network_spec_runs_or_has_a_reason() -> None:
    """The job compares the list with that of ``e2e.test``."""
    names = specs.NAMES.read_text().splitlines()
    selected = selection(None, "", subset=False)
    run = [name for name in names if re.search(selected.focus, name) and not re.search(selected.skip, name)]
    counts = specs.skipped_counts(names)
    assert {each.pattern: counts[each.pattern] for each in specs.SKIPPED} == {
        each.pattern: each.count for each in specs.SKIPPED
    }
    assert (len(names), len(run), counts[""]) == (246, 161, 161)


def test_network_specs_are_those_of_the_special_interest_group() -> None:
    listed = """The following spec names can be used with 'ginkgo run --focus/skip':
    k8s.io/kubernetes@v1.36.3/test/e2e/network/service.go:9: [sig-network] Services should serve: http
    k8s.io/kubernetes@v1.36.3/test/e2e/network/dns.go:8: [sig-network] DNS should resolve
    k8s.io/kubernetes@v1.36.3/test/e2e/node/pods.go:7: [sig-node] Pods should run
"""
    assert specs.network_specs(listed) == [
        "[sig-network] DNS should resolve",
        "[sig-network] Services should serve: http",
    ]


def test_documentation_lists_all_skipped_specs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "verification.md").read_text()
    rows = [f"| `{each.pattern}` | {each.count} | {each.reason} |" for each in specs.SKIPPED]
    assert [row for row in rows if row not in text] == []


def test_cluster_that_a_killed_job_has_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    left = tmp_path / "cluster" / "logs" / "etcd.log"
    left.parent.mkdir(parents=True)
    left.touch()
    with job_cluster(tmp_path) as (cluster, report):
        assert not cluster.state.exists
        assert list(report.iterdir()) == []
        with pytest.raises(SetupError, match="another process uses"), job_cluster(tmp_path):
            pass


def test_archive_has_an_image_for_each_name_with_one_layer(tmp_path: Path) -> None:
    """Upstream's tests use several images, all of which have the same files here."""
    names = ["registry.k8s.io/e2e-test-images/agnhost:2.63.0", "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"]
    packed = layer.pack(tmp_path, 0)
    configs = list(image_configs([*names, "registry.k8s.io/e2e-test-images/perl:5.26"]))
    with tarfile.open(fileobj=io.BytesIO(oci.archive_of_images(configs, packed, layer.compress(packed), 0))) as archive:
        index = json.load(_file(archive, "index.json"))["manifests"]
        manifests = [json.load(_file(archive, f"blobs/sha256/{each['digest'][7:]}")) for each in index]
    assert [each["annotations"]["io.containerd.image.name"] for each in index] == names
    assert manifests[0]["layers"] == manifests[1]["layers"]
    assert manifests[0]["config"] != manifests[1]["config"]


def _file(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found is not None
    return found
