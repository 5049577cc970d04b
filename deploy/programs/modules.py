"""Files of Go modules: Kubernetes' own manifests, and the definitions of Prometheus Operator's resources."""

import json
import subprocess
from pathlib import Path

from deploy.programs import cache
from deploy.programs.errors import SetupError
from deploy.programs.toolchain import environment, find_go


def module_folder(module: str, version: str, checksum: str) -> Path:
    """Return the folder of a module in Go's cache; download it if it is missing.

    ``checksum`` is the one of go.sum, such as ``h1:...=``. Raises SetupError if the module has another one, or if it
    cannot be downloaded.
    """
    go = find_go(cache.cache_folder())
    command = [go.program, "mod", "download", "-json", f"{module}@{version}"]
    # Outside a module, so that no go.mod decides.
    done = subprocess.run(command, cwd="/", env=environment(), capture_output=True, text=True, check=False)
    found = json.loads(done.stdout or "{}")
    if done.returncode != 0:
        msg = f"cannot download {module} {version}: {found.get('Error') or done.stderr.strip()}"
        raise SetupError(msg)
    if found["Sum"] != checksum:
        msg = f"{module} {version} has checksum {found['Sum']}, expected {checksum}"
        raise SetupError(msg)
    return Path(found["Dir"])
