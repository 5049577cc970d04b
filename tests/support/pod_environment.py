"""Starts a command with the configuration of a pod: its ServiceAccount's token and CA, and environment variables."""

from pathlib import Path

_IN_POD = """
mount -t tmpfs none /var/run
mkdir -p /var/run/secrets/kubernetes.io
ln -s "$1" /var/run/secrets/kubernetes.io/serviceaccount
shift
exec "$@"
"""
"""Mounts the ServiceAccount volume at its fixed path, in a new mount namespace."""


def pod_prefix(volume: Path, port: int) -> tuple[str, ...]:
    """Return what starts a command in a pod with this ServiceAccount volume and an API server on 127.0.0.1."""
    entering = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", _IN_POD, "sh", str(volume))
    return *entering, "env", "KUBERNETES_SERVICE_HOST=127.0.0.1", f"KUBERNETES_SERVICE_PORT={port}"
