"""Tests of the helpers of ``tests.cluster`` that need neither Go nor a cluster."""

import re
from pathlib import Path

import pytest

from deploy.programs.build import MODULE, release_and_flags
from deploy.programs.cache import creating
from deploy.programs.errors import SetupError
from deploy.programs.toolchain import supported_version
from tests.cluster.desired import FIRST_PORT, SCENARIO_SERVICE_CIDR, desired_objects
from tests.support.scenario import read_scenarios


def test_all_staging_modules_match_the_release() -> None:
    """All replaced modules have the version of the release, and go.sum has the checksum of the release."""
    module, sums = (MODULE / "go.mod").read_text(), (MODULE / "go.sum").read_text()
    release, flags = release_and_flags(module)
    replaced = re.findall(r"^\t(\S+) => (\S+) (v\S+)$", module, re.MULTILINE)
    assert {version for _, _, version in replaced} == {release.replace("v1.", "v0.")}
    assert all(name == other for name, other, _ in replaced)
    assert f"gitVersion={release}" in flags[-1]
    assert f"k8s.io/kubernetes {release} h1:" in sums


def test_go_mod_without_a_release_is_an_error() -> None:
    with pytest.raises(SetupError, match="names no release"):
        release_and_flags("require k8s.io/api v0.36.3\n")


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("go version go1.26.6 linux/amd64", "go1.26.6"),
        ("go version go1.27 linux/arm64", "go1.27"),
        ("go version go1.25.9 linux/amd64", None),
        ("go version devel go1.9 linux/amd64", None),
        ("", None),
    ],
)
def test_old_go_is_not_used(printed: str, version: str | None) -> None:
    assert supported_version(printed) == version


def test_failed_build_leaves_no_folder(tmp_path: Path) -> None:
    """A failed build leaves no directory with its name, and the next one starts with an empty directory."""
    folder = tmp_path / "programs"

    def fail() -> None:
        with creating(folder) as partial:
            (partial / "etcd").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not folder.exists()
    with creating(folder) as partial:
        assert list(partial.iterdir()) == []
        (partial / "etcd").write_text("whole")
    assert (folder / "etcd").read_text() == "whole"


def test_scenarios_set_all_node_ports() -> None:
    """A NodePort that the API server allocates could be one that a packet of the scenario uses."""
    for scenario in read_scenarios():
        for desired in desired_objects(scenario.manifests()).values():
            spec = desired.item.get("spec", {})
            if spec.get("type") == "NodePort":
                assert all(port["nodePort"] >= FIRST_PORT for port in spec["ports"])
            if spec.get("type") == "LoadBalancer":
                assert spec["allocateLoadBalancerNodePorts"] is False


def test_creation_timestamps_are_used_if_one_is_given() -> None:
    """Then a Service without one is the youngest. Otherwise all keep their real creation times."""
    young, old = ({"kind": "Service", "metadata": {"name": name}, "spec": {}} for name in ("young", "old"))
    assert [desired.dated for desired in desired_objects([young]).values()][1:] == [False]
    old["metadata"] = {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z"}
    desired_services = list(desired_objects([young, old]).values())[1:]
    assert [(desired.dated, desired.created) for desired in desired_services] == [
        (True, None),
        (True, "2026-01-01T00:00:00Z"),
    ]


def test_scenario_service_cidrs_are_renamed() -> None:
    """The API server recreates its own ServiceCIDR, which is named kubernetes."""
    service_cidr = {"kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/24"]}}
    assert [key[2] for key in desired_objects([service_cidr], with_service_cidr=False)] == ["scenario"]
    assert [key[2] for key in desired_objects([])] == [SCENARIO_SERVICE_CIDR["metadata"]["name"]]
