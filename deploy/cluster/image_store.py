"""containerd's directory with all images of a cluster, made once; each node starts with a copy of it.

An import takes seconds of each node's start. The copy has hard links to the files of the images, which containerd never
changes: they are lower directories of overlays, and blobs named by their digests.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.cluster import processes
from deploy.cluster.keys import Keys
from deploy.cluster.machine import Machine
from deploy.cluster.node import CONTAINERD, Node
from deploy.cluster.packages import Unpacked
from deploy.cluster.plan import make_plan
from deploy.cluster.state import State
from deploy.programs import cache
from deploy.programs.build import Programs

_KEPT = 2
_DATABASES = "*.db"
"""The files that containerd writes to."""


def make_image_store(archives: Sequence[Path], programs: Programs, packages: Unpacked) -> Path:
    """Return the directory; import the archives if it does not exist. Raise SetupError if that fails."""
    folder = cache.cache_folder() / "image-stores"
    folder.mkdir(exist_ok=True)
    names = " ".join([packages.root.name, *(path.name for path in archives)])
    store = folder / hashlib.sha256(names.encode()).hexdigest()[:12]
    with cache.locked(folder):
        if not store.is_dir():
            _import(archives, store, programs, packages)
        store.touch()
        folder.touch()
        _delete_old(folder)
    return store


def _import(archives: Sequence[Path], store: Path, programs: Programs, packages: Unpacked) -> None:
    """Run containerd on a node without network and kubelet."""
    state, plan = _partial_state(store.parent), make_plan(1)
    _discard(state)
    node = Node(state, plan, plan.nodes[0], (programs, packages, Keys(programs.path("keys"), state.keys)))
    try:
        node.boot()
        node.start_containerd()
        node.import_images(archives)
        # So that it closes its databases.
        node.machine.stop_process(CONTAINERD)
        node.kill()
        node.containerd_folder.rename(store)
    finally:
        _discard(state)


def _delete_old(folder: Path) -> None:
    """Delete all but the newest ones: each change of knft's source gives another one."""
    stores = sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for store in stores[:-_KEPT]:
        shutil.rmtree(store)


def discard_partial_store() -> None:
    """Remove what is left of an import whose process was killed."""
    folder = cache.cache_folder() / "image-stores"
    if folder.is_dir():
        with cache.locked(folder):
            _discard(_partial_state(folder))


def _partial_state(folder: Path) -> State:
    return State(folder / "partial")


def _discard(state: State) -> None:
    for name in state.machines():
        Machine(name, state.machine(name), state.logs).remove()
    state.remove()


def copy_image_store(store: Path, target: Path) -> None:
    """Copy the directory to ``target``, which does not exist."""
    # Hard links are impossible between file systems.
    linked = subprocess.run(["cp", "--archive", "--link", str(store), str(target)], check=False, capture_output=True)  # noqa: S607
    if linked.returncode != 0:
        processes.run(["cp", "--archive", "--force", "--no-target-directory", str(store), str(target)])
        return
    for database in store.rglob(_DATABASES):
        copy = target / database.relative_to(store)
        processes.run(["cp", "--archive", "--remove-destination", str(database), str(copy)])
