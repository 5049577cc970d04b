"""Reads how a pod reaches the API server: its ServiceAccount's token, the CA, and two environment variables."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from knft.apiserver.client_config import ClientConfig, FileSignatures, PemSource
from knft.errors import SourceError, UsageError
from knft.source.files import error_reason, file_signature, format_path, read_manifest

_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
HOST_VARIABLE, PORT_VARIABLE = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class PodEnvironment(NamedTuple):
    """The files of a pod's ServiceAccount, and the pod's environment variables; tests use others."""

    token_file: str = f"{_FOLDER}/token"
    ca_file: str = f"{_FOLDER}/ca.crt"
    environment: Mapping[str, str] = os.environ


def in_cluster_config(pod: PodEnvironment) -> ClientConfig:
    """Return the configuration of this pod; raise UsageError if the process does not run in a pod with a token."""
    host, port = (pod.environment.get(name, "") for name in (HOST_VARIABLE, PORT_VARIABLE))
    if not host:
        msg = (
            f"no API server configured: {HOST_VARIABLE} is not set, so this is not a pod; give --kubeconfig FILE "
            "(clientConnection.kubeconfig in a configuration file), --master, or --manifests DIR"
        )
        raise UsageError(msg)
    if not port:
        msg = f"no API server configured: {HOST_VARIABLE} is set, but {PORT_VARIABLE} is not"
        raise UsageError(msg)
    files: FileSignatures = {}
    token, ca = _read(pod, pod.token_file, files), _read(pod, pod.ca_file, files)
    try:
        text = token.decode()
    except UnicodeDecodeError as error:
        msg = f"{_source(pod.token_file)}: the file is not UTF-8 text"
        raise UsageError(msg) from error
    # An IPv6 address needs brackets in a URL.
    server = f"https://[{host}]:{port}" if ":" in host or "%" in host else f"https://{host}:{port}"
    return ClientConfig(
        source=_source(pod.ca_file),
        server=server,
        ca=PemSource(ca, pod.ca_file),
        authorization=f"Bearer {text}".strip(),
        credentials_source=_source(pod.token_file),
        file_signatures=files,
    )


def _source(path: str) -> str:
    return f"ServiceAccount of this pod, {format_path(path)}"


def _read(pod: PodEnvironment, path: str, files: FileSignatures) -> bytes:
    """Return the contents of a file; record its signature, taken before it is read."""
    files[path] = file_signature(Path(path))
    try:
        data = read_manifest(Path(path))
    except (OSError, SourceError) as error:
        raise _unreadable(pod, path, error_reason(error)) from error
    if not data:
        raise _unreadable(pod, path, "the file is empty")
    return data


def _unreadable(pod: PodEnvironment, path: str, problem: str) -> UsageError:
    files = f"{format_path(pod.token_file)}, {format_path(pod.ca_file)}"
    advice = "mount its token, or give --kubeconfig"
    return UsageError(f"ServiceAccount of this pod ({files}): {format_path(path)}: {problem}; {advice}")
