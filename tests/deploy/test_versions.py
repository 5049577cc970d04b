"""Manifests and chart name the version of the package."""

import re
from pathlib import Path

import pytest
import yaml

from knft import __version__

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCS = Path(__file__).parents[2] / "docs"
_MINOR = re.compile(r"\b1\.(\d\d)(?:\.\d+)?\b")


def test_chart_has_the_version() -> None:
    chart = yaml.safe_load((DEPLOY / "chart/knft/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize(
    "file", ["kustomize/base/kustomization.yaml", "kustomize/overlays/kubeadm/kubeproxydaemonset+strategic.yaml"]
)
def test_manifests_have_the_version(file: str) -> None:
    text = (DEPLOY / file).read_text()
    found = re.findall(r"newTag: (\S+)|image: knft\.dev/knft:(\S+)", text)
    assert found
    assert {tag or image for tag, image in found} == {__version__}


def test_documents_and_chart_name_the_releases_of_kubernetes_that_are_tested() -> None:
    """They are those of the table of test results, with the pinned one among them."""
    results = re.findall(r"^\| 1\.(\d\d)\.\d+ \|", (DOCS / "verification.md").read_text(), re.MULTILINE)
    tested = {int(minor) for minor in results}
    requirements = re.findall(
        r"^\| (?:Kubernetes )?\| (1\..*?) \| .*test-parity",
        (DOCS / "operations/installation.md").read_text(),
        re.MULTILINE,
    )
    assert {int(minor) for row in requirements for minor in _MINOR.findall(row)} == tested
    pinned = re.search(r"k8s\.io/kubernetes v1\.(\d\d)", (DEPLOY / "programs/kubernetes/go.mod").read_text())
    assert pinned is not None
    assert int(pinned[1]) in tested
    chart = yaml.safe_load((DEPLOY / "chart/knft/Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">=1.{min(tested)}.0-0"
    range_of_releases = f"1.{min(tested)} to 1.{max(tested)}"
    for page in ("operations/releases.md", "getting-started.md"):
        assert range_of_releases in (DOCS / page).read_text(), page
