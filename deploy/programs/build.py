"""Builds programs of the releases that the Go modules name, once, into the cache."""

import argparse
import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from deploy.programs import cache
from deploy.programs.errors import SetupError
from deploy.programs.toolchain import Go, environment, find_go

_FOLDER = Path(__file__).parent
MODULE = _FOLDER / "kubernetes"
"""The Go module that names the release of Kubernetes."""
_HELM = _FOLDER / "helm"
METALLB = _FOLDER / "metallb"
"""The Go module of MetalLB, which one test job needs: its programs have a folder of their own."""
_KUBEADM = _FOLDER / "kubeadm"
"""The Go module of a kubeadm that patches kube-proxy's DaemonSet: newer than the other programs."""


class _Program(NamedTuple):
    """A program: the folder of its Go module, and its package; ``is_test`` if it consists of the package's tests."""

    module: Path
    package: str
    is_test: bool = False


_KUBERNETES = "k8s.io/kubernetes"
_PROGRAMS: Mapping[str, _Program] = {
    "keys": _Program(MODULE, "./keys"),
    "etcd": _Program(MODULE, "./etcd"),
    "pause": _Program(MODULE, "./pause"),
    **{
        name: _Program(MODULE, f"{_KUBERNETES}/cmd/{name}")
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-proxy",
            "kube-scheduler",
            "kubectl",
            "kubelet",
        )
    },
    "agnhost": _Program(MODULE, f"{_KUBERNETES}/test/images/agnhost"),
    "regression-issue-74839": _Program(MODULE, f"{_KUBERNETES}/test/images/regression-issue-74839"),
    "coredns": _Program(MODULE, "./coredns"),
    "ginkgo": _Program(MODULE, "github.com/onsi/ginkgo/v2/ginkgo"),
    "e2e.test": _Program(MODULE, f"{_KUBERNETES}/test/e2e", is_test=True),
    "helm": _Program(_HELM, "helm.sh/helm/v4/cmd/helm"),
}
_METALLB: Mapping[str, _Program] = {
    name: _Program(METALLB, f"go.universe.tf/metallb/{name}") for name in ("controller", "speaker")
}
_KUBEADM_PROGRAM = {"kubeadm": _Program(_KUBEADM, f"{_KUBERNETES}/cmd/kubeadm")}
SERVERS = ("keys", "etcd", "kube-apiserver", "kube-proxy")
"""What the tests with an API server need."""
_ALL = "all"

_RELEASE = re.compile(r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\d+)\b", re.MULTILINE)
_VERSION = "k8s.io/component-base/version"


class Programs(NamedTuple):
    """The folder of the programs, and the release of Kubernetes, such as ``v1.36.3``."""

    folder: Path
    release: str

    def path(self, name: str) -> str:
        """Return the path of a program that was asked for."""
        return str(self.folder / name)


def programs(names: Collection[str] = SERVERS) -> Programs:
    """Return the programs; build those that are not in the cache. Raise SetupError if that fails."""
    return _programs({name: _PROGRAMS[name] for name in names}, (MODULE, _HELM), "")


def metallb_programs() -> Programs:
    """Return the folder of MetalLB's programs ``controller`` and ``speaker``, as ``programs`` does."""
    return _programs(_METALLB, (METALLB,), "metallb-")


def kubeadm_program() -> Programs:
    """Return the folder of ``kubeadm`` and its own release, as ``programs`` does."""
    return _programs(_KUBEADM_PROGRAM, (_KUBEADM,), "kubeadm-", kubernetes=_KUBEADM)


def _programs(
    wanted: Mapping[str, _Program], modules: Collection[Path], prefix: str, *, kubernetes: Path = MODULE
) -> Programs:
    release, flags = release_and_flags((kubernetes / "go.mod").read_text())
    folder = cache.cache_folder()
    with cache.locked(folder):
        go = find_go(folder)
        built = folder / f"{prefix}{release}-{_key(go, flags, modules)}"
        built.mkdir(exist_ok=True)
        missing = [name for name in wanted if not (built / name).exists()]
        if missing:
            print(f"programs: building {', '.join(missing)} with {go.version}; this can take many minutes", flush=True)
        for name in missing:
            _build(go, flags, wanted[name], built / name)
        cache.mark_used(built)
    return Programs(built, release)


def release_and_flags(module: str) -> tuple[str, list[str]]:
    """Return the release that a go.mod names, and the build flags for it."""
    match = _RELEASE.search(module)
    if match is None:
        msg = "go.mod names no release of Kubernetes"
        raise SetupError(msg)
    release, major, minor = match.groups()
    # Without these the programs would report version v0.0.0; Kubernetes' own build scripts set them.
    variables = {"gitVersion": release, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    linked = " ".join(f"-X {_VERSION}.{name}={value}" for name, value in variables.items())
    return release, ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {linked}"]


def _key(go: Go, flags: list[str], modules: Collection[Path]) -> str:
    """Return a hash of everything that the programs depend on."""
    sources = [path.read_bytes() for folder in modules for path in sorted(folder.rglob("*")) if path.is_file()]
    return hashlib.sha256(b"\0".join([go.version.encode(), *map(str.encode, flags), *sources])).hexdigest()[:12]


def _build(go: Go, flags: list[str], program: _Program, path: Path) -> None:
    """Build a program; a failed build leaves no file with this name."""
    partial = path.with_name(f"{path.name}.partial")
    # "go test" would run vet for all packages, which takes longer than the build.
    verb = ["test", "-c", "-vet=off"] if program.is_test else ["build"]
    # The build uses all cores for minutes, so it has a low priority.
    command = ["nice", go.program, *verb, *flags, "-o", str(partial), program.package]
    started = time.monotonic()
    if subprocess.run(command, cwd=program.module, env=environment(), check=False).returncode != 0:
        msg = f"cannot build {path.name}: see the output of go above; check GOPROXY if modules are missing"
        raise SetupError(msg)
    partial.rename(path)
    print(f"programs: built {path.name} in {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    """Build the programs that the command line names, and print their folder."""
    parser = argparse.ArgumentParser(prog="python -m deploy.programs.build", description=__doc__)
    parser.add_argument("names", nargs="*", default=_ALL, choices=[*_PROGRAMS, _ALL], help="default: all")
    given = parser.parse_args().names
    names = _PROGRAMS if _ALL in given else given
    try:
        built = programs(names)
        if names is _PROGRAMS:
            kubeadm_program()
    except SetupError as problem:
        sys.exit(f"programs: {problem}")
    print(f"programs: {', '.join(names)} of Kubernetes {built.release} are in {built.folder}")


if __name__ == "__main__":
    main()
