"""``python -m tests.cluster.release v1.37.2`` pins another release of Kubernetes, with its modules, etcd and checksums.

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

from tests.cluster import cache
from tests.cluster.build import MODULE
from tests.cluster.setup_error import SetupError
from tests.cluster.toolchain import Go, environment, find_go

_RELEASE = re.compile(r"v1\.(\d+)\.(\d+)")
_STAGING = re.compile(r"^\t(k8s\.io/\S+) => \./staging/src/", re.MULTILINE)
_ETCD = re.compile(r"^\tgo\.etcd\.io/etcd/server/v3 (\S+)", re.MULTILINE)
_GO = re.compile(r"^(?:go|godebug default)[ =]\S+$", re.MULTILINE)
_TOOLS = ("k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-proxy")


def module_text(release: str, upstream: str) -> str:
    """Return a go.mod for a release such as v1.36.3, without indirect requirements; ``upstream`` is Kubernetes' go.mod.

    Kubernetes' modules replace each other by folders of its repository; outside of it they have versions such as
    v0.36.3. Raises SetupError if the release or the go.mod has another form.
    """
    version, etcd, staging = _staging_version(release), _ETCD.search(upstream), _STAGING.findall(upstream)
    if etcd is None or not staging:
        msg = f"the go.mod of Kubernetes {release} names no etcd or no modules of its own; adapt {Path(__file__).name}"
        raise SetupError(msg)
    lines = (
        "module knft.test/cluster\n",
        *(f"{line}\n" for line in _GO.findall(upstream)),
        *("tool (", *(f"\t{tool}" for tool in _TOOLS), ")\n"),
        *("require (", f"\tgo.etcd.io/etcd/server/v3 {etcd[1]}", f"\tk8s.io/kubernetes {release}", ")\n"),
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
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.release", description=__doc__)
    parser.add_argument("release", help="such as v1.37.2")
    release = parser.parse_args().release
    try:
        pin(release)
    except SetupError as problem:
        sys.exit(f"release: {problem}")
    print(f"release: {MODULE / 'go.mod'} names Kubernetes {release}; now run python -m tests.upstream.dump")


if __name__ == "__main__":
    main()
