"""Manifests and chart name the version of the package."""

import re
from pathlib import Path

import pytest
import yaml

from knft import __version__

DEPLOY = Path(__file__).parents[2] / "deploy"


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
