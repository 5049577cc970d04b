"""What every job with the real kube-proxy needs first."""

import sys

from deploy.programs.build import programs
from deploy.programs.errors import SetupError
from tests.support.privilege import PrivilegeError, ensure_namespaces


def prepare(job: str) -> str:
    """Get permission for network namespaces and build the programs; return Kubernetes' release.

    If that fails, exit with a message that begins with the job's name.
    """
    try:
        ensure_namespaces()
        return programs().release
    except (PrivilegeError, SetupError) as error:
        sys.exit(f"{job}: {error}")
