"""Copies kube-proxy's source, and adds calls to its tests that record objects, rules and packets.

Nothing of that source is in this repository: it comes from the module ``k8s.io/kubernetes`` of the release that
``deploy/programs/kubernetes/go.mod`` pins.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deploy.programs.build import MODULE, release_and_flags
from deploy.programs.cache import cache_folder
from deploy.programs.errors import SetupError
from deploy.programs.toolchain import Go, environment, find_go

MODES = ("iptables", "ipvs", "nftables")
TOPOLOGY = "topology"
"""The test of the selection of endpoints, which all modes share."""
_RECORDING = Path(__file__).with_name("go")
_PROXY = Path("pkg", "proxy")
_KUBERNETES = "k8s.io/kubernetes"
_COPIED = ("pkg", "test/utils", "third_party")
_REPLACEMENTS = re.compile(r"^replace \([^)]*\)\n", re.MULTILINE)


class Provenance(NamedTuple):
    """The module that the cases come from: its path, its version, and its checksum as in go.sum."""

    module: str
    version: str
    checksum: str


class _Edit(NamedTuple):
    """Text to replace, wherever it occurs in a file of ``pkg/proxy``: a regular expression, and its replacement."""

    path: str
    old: str
    new: str


_IMPORT = (r"import \(\n", f'import (\n\t"{_KUBERNETES}/pkg/proxy/recorder"\n')
_TEST = (r"\(t \*testing\.T\) \{\n", r"\g<0>recorder.Test(t)\n")
_RECORD_FLOW = "recorder.Flow(tc.name, tc.sourceIP, string(tc.protocol), tc.destIP, tc.destPort, tc.output, tc.masq)"
_FLOWS = (
    r"func runPacketFlowTests\(.*\{\n",
    rf"\g<0>for _, tc := range testCases {{\n{_RECORD_FLOW}\n}}\n",
)
_SYNC = (r"\) syncProxyRules\(\) \(", ") originalSyncProxyRules() (")
_ASSERTION = r"func (?:%s)\(.*\{\n"
_ASSERTIONS = {
    "iptables/proxier_test.go": "assertIPTablesRulesEqual|assertIPTablesChainEqual",
    "ipvs/proxier_test.go": "checkIptables|checkIPSet|checkIPVS",
    "nftables/helpers_test.go": "assertNFTablesTransactionEqual",
}


def _edits(tests: Iterable[str]) -> Iterator[_Edit]:
    """Yield the edits; ``tests`` are the files with tests."""
    services, slices = "servicechangetracker.go", "endpointschangetracker.go"
    yield _Edit(
        services,
        r"\) Update\(previous, current \*v1\.Service\) bool \{\n",
        r"\g<0>recorder.Service(sct, previous, current)\n",
    )
    yield _Edit(
        slices,
        r"\) EndpointSliceUpdate\(endpointSlice \*discovery\.EndpointSlice, removeSlice bool\) bool \{\n",
        r"\g<0>recorder.Slice(ect, endpointSlice, removeSlice)\n",
    )
    for mode in MODES:
        yield _Edit(f"{mode}/proxier.go", *_SYNC)
    yield _Edit("topology.go", r"func CategorizeEndpoints\(", "func originalCategorizeEndpoints(")
    for path in ("iptables/proxier_test.go", "nftables/helpers_test.go"):
        yield _Edit(path, *_FLOWS)
    for path, functions in _ASSERTIONS.items():
        yield _Edit(path, _ASSERTION % functions, r"\g<0>recorder.Asserted()\n")
    for path in (services, slices):
        yield _Edit(path, *_IMPORT)
    for path in tests:
        yield _Edit(path, *_TEST)
        yield _Edit(path, *_IMPORT)


def find_module(go: Go) -> tuple[Path, Provenance]:
    """Return the folder of Kubernetes' module, and its provenance; download it if it is missing; raise SetupError."""
    release, _ = release_and_flags((MODULE / "go.mod").read_text())
    done = subprocess.run(
        [go.program, "mod", "download", "-json", f"{_KUBERNETES}@{release}"],
        cwd=MODULE, env=environment(), stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout or "{}")
    if done.returncode != 0:
        msg = f"cannot download {_KUBERNETES} {release}: {found.get('Error', 'see the output above')}"
        raise SetupError(msg)
    return Path(found["Dir"]), Provenance(_KUBERNETES, release, found["Sum"])


def copy_with_recording(module: Path, folder: Path) -> None:
    """Copy the module's source to ``folder``, with calls that record; raise SetupError if a place is missing."""
    for name in _COPIED:
        shutil.copytree(module / name, folder / name, copy_function=shutil.copyfile)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for edit in _edits(_test_files(folder / _PROXY)):
        _apply(edit, folder / _PROXY)
    shutil.copytree(_RECORDING, folder / _PROXY, dirs_exist_ok=True)
    own, pinned = (module / "go.mod").read_text(), (MODULE / "go.mod").read_text()
    (folder / "go.mod").write_text(_go_mod(own, pinned))
    (folder / "go.sum").write_text((module / "go.sum").read_text() + (MODULE / "go.sum").read_text())


def _test_files(folder: Path) -> list[str]:
    of_modes = (path for mode in MODES for path in sorted((folder / mode).glob("*_test.go")))
    paths = (*of_modes, folder / "topology_test.go")
    return [str(path.relative_to(folder)) for path in paths if re.search(_TEST[0], path.read_text())]


def _apply(edit: _Edit, folder: Path) -> None:
    path = folder / edit.path
    changed, count = re.subn(edit.old, edit.new, path.read_text())
    if count == 0:
        msg = f"{edit.path} of this release has no {edit.old!r}: adapt tests/upstream/source.py"
        raise SetupError(msg)
    path.write_text(changed)


def _go_mod(own: str, pinned: str) -> str:
    """Return Kubernetes' go.mod, with released modules instead of the folders of its repository."""
    found = [_REPLACEMENTS.search(text) for text in (own, pinned)]
    if found[0] is None or found[1] is None:
        msg = "a go.mod has no block of replacements: adapt tests/upstream/source.py"
        raise SetupError(msg)
    return own[: found[0].start()] + found[1][0] + own[found[0].end() :]


def run_tests(go: Go, folder: Path, mode: str) -> list[dict[str, Any]]:
    """Run the tests of one mode, or TOPOLOGY; return the recorded events; raise SetupError if a test fails."""
    events = folder / f"{mode}.events"
    events.touch()
    _, flags = release_and_flags((MODULE / "go.mod").read_text())
    # -mod=mod, because Kubernetes' go.mod also names modules that are not released.
    options = [*(flag for flag in flags if flag != "-mod=readonly"), "-mod=mod", "-vet=off", "-count=1"]
    tested = ["-run=^TestCategorizeEndpoints$", f"./{_PROXY}"] if mode == TOPOLOGY else [f"./{_PROXY}/{mode}"]
    done = subprocess.run(
        [go.program, "test", *options, *tested],
        cwd=folder, env={**environment(), "KNFT_EVENTS": str(events)}, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        msg = f"kube-proxy's own tests of {mode} fail: see the output of go above"
        raise SetupError(msg)
    return [json.loads(line) for line in events.read_text().splitlines()]


def find_toolchain() -> Go:
    """Return the Go toolchain of tests/cluster; install it if there is none; raise SetupError."""
    return find_go(cache_folder())
