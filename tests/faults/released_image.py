"""The image of the last released version of knft, whose tables have another layout."""

import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.cluster.images import KNFT
from deploy.cluster.processes import CHECKOUT
from deploy.image.build import build
from deploy.image.errors import ImageError
from deploy.image.inputs import copy_inputs, inputs_digest
from deploy.image.variant import DEFAULT, VARIANTS, native_architecture
from deploy.programs import cache
from deploy.programs.errors import SetupError
from tests.support.packets.released_layout import RELEASED, unpack_released

_VERSION = "0.0.1"
"""Its own version is this one's."""
_WITHOUT_SQLITE = """
import sys, types

sys.modules["sqlite3"] = types.ModuleType("sqlite3")
"""
"""The version imports all of pyroute2, which imports sqlite3 and does not use it; this version's image lacks it."""
_ARGUMENTS = ["run", "--config=/etc/knft/config.yaml", "--hostname-override=$(NODE_NAME)"]
_READY = {"httpGet": {"path": "/healthz", "port": "healthz"}}
RELEASED_POD: Mapping[str, Any] = {
    "spec": {
        "template": {
            "spec": {
                "initContainers": [
                    {
                        "name": "sysctls",
                        "image": f"{KNFT}:{_VERSION}",
                        "args": ["run", "--init-only", "--config=/etc/knft/config.yaml"],
                    }
                ],
                "containers": [
                    {
                        "name": "knft",
                        "image": f"{KNFT}:{_VERSION}",
                        "args": _ARGUMENTS,
                        # It has no /readyz.
                        "readinessProbe": _READY,
                    }
                ],
            }
        }
    }
}
"""The patch of the DaemonSet for this image: the version has neither the instance lock nor its flag."""


def released_images() -> tuple[Path, ...]:
    """Return the OCI archive; build it if it is missing. Raise SetupError if that fails.

    The packages and Python distributions in it are those of this version's image.
    """
    folder = cache.cache_folder() / "released-images"
    folder.mkdir(exist_ok=True)
    with cache.locked(folder), tempfile.TemporaryDirectory(prefix="knft-image-", dir=folder) as name:
        checkout = Path(name, "checkout")
        copy_inputs(CHECKOUT, checkout)
        shutil.rmtree(checkout / "knft")
        unpack_released(checkout)
        package = checkout / "knft" / "__init__.py"
        text = re.sub(r'__version__ = ".*"', f'__version__ = "{_VERSION}"', package.read_text())
        package.write_text(f"{text}{_WITHOUT_SQLITE}")
        archive = folder / f"knft-{RELEASED}-{inputs_digest(checkout)[:12]}.oci.tar"
        if not archive.exists():
            print("faults: building the image of the last release", flush=True)
            for old in folder.glob("*.oci.tar"):
                old.unlink()
            try:
                built = build(checkout, VARIANTS[DEFAULT], native_architecture(), int(time.time()), Path(name, "built"))
            except ImageError as error:
                raise SetupError(str(error)) from error
            built.path.rename(archive)
    return (archive,)
