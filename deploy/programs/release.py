"""``python -m deploy.programs.release v1.37.2`` pins another release of Kubernetes: modules, etcd, ginkgo, checksums.

Afterwards run ``python -m tests.upstream.dump``, and the jobs that use the programs.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.programs import cache
from deploy.programs.build import MODULE
from deploy.programs.errors import SetupError
from deploy.programs.toolchain import Go, environment, find_go

_RELEASE = re.compile(r"v1\.(\d+)\.(\d+)")
_STAGING = re.compile(r"^\t(k8s\.io/\S+) => \./staging/src/", re.MULTILINE)
_ETCD = re.compile(r"^\tgo\.etcd\.io/etcd/server/v3 (\S+)", re.MULTILINE)
_GO = re.compile(r"^(?:go|godebug default)[ =]\S+$", re.MULTILINE)
_GINKGO = re.compile(r"^\tgithub\.com/onsi/ginkgo/v2 (\S+)", re.MULTILINE)
_COREDNS = "v1.14.1"
"""A release that needs no newer version of a module than Kubernetes does."""
_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
_TOOLS = (
    "github.com/onsi/ginkgo/v2/ginkgo",
    *(f"k8s.io/kubernetes/cmd/{name}" for name in _COMMANDS),
    "k8s.io/kubernetes/test/images/agnhost",
)


def module_text(release: str, upstream: str) -> str:
    """Return a go.mod for a release such as v1.36.3, without indirect requirements; ``upstream`` is Kubernetes' go.mod.

    Kubernetes' modules replace each other by folders of its repository; outside of it they have versions such as
    v0.36.3. Raises SetupError if the release or the go.mod has another form.
    """
    version, staging = _staging_version(release), _STAGING.findall(upstream)
    etcd, ginkgo = _ETCD.search(upstream), _GINKGO.search(upstream)
    if etcd is None or ginkgo is None or not staging:
        names = "no etcd, no ginkgo or no modules of its own"
        msg = f"the go.mod of Kubernetes {release} names {names}; adapt {Path(__file__).name}"
        raise SetupError(msg)
    required = {
        "github.com/coredns/coredns": _COREDNS,
        "github.com/onsi/ginkgo/v2": ginkgo[1],
        "go.etcd.io/etcd/server/v3": etcd[1],
        "k8s.io/kubernetes": release,
    }
    lines = (
        "module knft.dev/programs/kubernetes\n",
        *(f"{line}\n" for line in _GO.findall(upstream)),
        *("tool (", *(f"\t{tool}" for tool in _TOOLS), ")\n"),
        *("require (", *(f"\t{name} {wanted}" for name, wanted in required.items()), ")\n"),
        *("replace (", *(f"\t{name} => {name} {version}" for name in staging), ")\n"),
    )
    return "\n".join(lines)


def _staging_version(release: str) -> str:
    found = _RELEASE.fullmatch(release)
    if found is None:
        msg = f"{release!r} is not a release of Kubernetes such as v1.36.3"
        raise SetupError(msg)
    return f"v0.{found[1]}.{found[2]}"


def pin(release: str) -> None:
    """Write go.mod and go.sum for a release; nothing changes if that fails. Raises SetupError."""
    _staging_version(release)
    go = find_go(cache.cache_folder())
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "go"
        shutil.copytree(MODULE, copy)
        (copy / "go.sum").unlink()
        downloaded = json.loads(_run(go, Path(folder), "mod", "download", "-json", f"k8s.io/kubernetes@{release}"))
        (copy / "go.mod").write_text(module_text(release, Path(downloaded["GoMod"]).read_text()))
        _run(go, copy, "mod", "tidy")
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(copy / name, MODULE / name)


def _run(go: Go, folder: Path, *arguments: str) -> str:
    command = [go.program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"'go {' '.join(arguments)}' failed: {(done.stderr or done.stdout).strip()[-2000:]}"
        raise SetupError(msg)
    return done.stdout


def main() -> None:
    """Pin the release that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m deploy.programs.release", description=__doc__)
    parser.add_argument("release", help="such as v1.37.2")
    release = parser.parse_args().release
    try:
        pin(release)
    except SetupError as problem:
        sys.exit(f"release: {problem}")
    print(f"release: {MODULE / 'go.mod'} names Kubernetes {release}; now run python -m tests.upstream.dump")


if __name__ == "__main__":
    main()
