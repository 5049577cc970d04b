"""Builds etcd, kube-apiserver and kube-proxy of the release that ``go/go.mod`` names, once, into the cache."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.cluster import cache
from tests.cluster.setup_error import SetupError
from tests.cluster.toolchain import Go, environment, find_go

MODULE = Path(__file__).with_name("go")
_PACKAGES = {
    "keys": "./keys",
    "etcd": "./etcd",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
}
_RELEASE = re.compile(r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\d+)\b", re.MULTILINE)
_VERSION = "k8s.io/component-base/version"


class Programs(NamedTuple):
    """The folder of the programs, and the release of Kubernetes, such as ``v1.36.3``."""

    folder: Path
    release: str

    def path(self, name: str) -> str:
        """Return the path of ``keys``, ``etcd``, ``kube-apiserver`` or ``kube-proxy``."""
        return str(self.folder / name)


def programs() -> Programs:
    """Return the programs; build them if they are not in the cache. Raise SetupError if that fails."""
    release, flags = release_and_flags((MODULE / "go.mod").read_text())
    folder = cache.cache_folder()
    with cache.locked(folder):
        go = find_go(folder)
        built = folder / f"{release}-{_key(go, flags)}"
        if not built.is_dir():
            with cache.creating(built) as partial:
                _build(go, flags, partial)
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


def _key(go: Go, flags: list[str]) -> str:
    """Return a hash of everything that the programs depend on."""
    sources = [path.read_bytes() for path in sorted(MODULE.rglob("*")) if path.is_file()]
    return hashlib.sha256(b"\0".join([go.version.encode(), *map(str.encode, flags), *sources])).hexdigest()[:12]


def _build(go: Go, flags: list[str], folder: Path) -> None:
    print(f"test-cluster: building with {go.version}; the first build takes ten minutes or more", flush=True)
    for name, package in _PACKAGES.items():
        # The build uses all cores for minutes, so it has a low priority.
        command = ["nice", go.program, "build", *flags, "-o", str(folder / name), package]
        if subprocess.run(command, cwd=MODULE, env=environment(), check=False).returncode != 0:
            msg = f"cannot build {name}: see the output of go above; check GOPROXY if modules are missing"
            raise SetupError(msg)


def main() -> None:
    """Build the programs, and print their folder."""
    try:
        built = programs()
    except SetupError as problem:
        sys.exit(f"test-cluster: {problem}")
    print(f"test-cluster: etcd, kube-apiserver and kube-proxy {built.release} are in {built.folder}")


if __name__ == "__main__":
    main()
