"""The command that pins another release of Kubernetes."""

import re
import subprocess
import sys

import pytest

from deploy.programs.build import MODULE, release_and_flags
from deploy.programs.errors import SetupError
from deploy.programs.release import module_text

UPSTREAM = """\
module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
\tgithub.com/blang/semver/v4 v4.0.0
\tgithub.com/onsi/ginkgo/v2 v2.28.1
\tgo.etcd.io/etcd/server/v3 v3.6.8 // indirect
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/kube-proxy => ./staging/src/k8s.io/kube-proxy
)
"""


def test_module_names_the_release_its_modules_and_etcd() -> None:
    text = module_text("v1.36.3", UPSTREAM)
    assert release_and_flags(text)[0] == "v1.36.3"
    assert "go 1.26.0\n" in text
    assert "godebug default=go1.26\n" in text
    assert "\tgo.etcd.io/etcd/server/v3 v3.6.8\n" in text
    assert "\tgithub.com/onsi/ginkgo/v2 v2.28.1\n" in text
    assert re.findall(r"=> (.*)", text) == ["k8s.io/api v0.36.3", "k8s.io/kube-proxy v0.36.3"]


def test_pinned_module_has_the_same_tools() -> None:
    tools = re.compile(r"tool \(\n(.*?)\)", re.DOTALL)
    generated, pinned = (
        tools.findall(text) for text in (module_text("v1.36.3", UPSTREAM), (MODULE / "go.mod").read_text())
    )
    assert generated == pinned


@pytest.mark.parametrize(
    ("release", "upstream", "message"),
    [
        ("1.36.3", UPSTREAM, "'1.36.3' is not a release of Kubernetes such as v1.36.3"),
        ("v1.36.3", "module k8s.io/kubernetes\n", "the go.mod of Kubernetes v1.36.3 names no etcd, no ginkgo"),
    ],
)
def test_unexpected_input_is_an_error(release: str, upstream: str, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        module_text(release, upstream)


def test_command_changes_nothing_for_a_wrong_release() -> None:
    before = (MODULE / "go.mod").read_bytes()
    command = [sys.executable, "-m", "deploy.programs.release", "latest"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "release: 'latest' is not a release of Kubernetes such as v1.36.3\n"
    assert (MODULE / "go.mod").read_bytes() == before
