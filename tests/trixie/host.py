"""What the root directory shares with the host: environment variables, pip's configuration, and files that it names."""

import ast
import os
import subprocess
import sys
from pathlib import Path

_SHARED_VARIABLES = (
    "PIP_",
    "SSL_CERT_",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "HYPOTHESIS_",
    "TERM",
)
_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs")


def environment() -> dict[str, str]:
    """Return the environment of commands in the root directory: of the host only its pip index and proxies."""
    return {
        **_pip_configuration(),
        **{name: value for name, value in os.environ.items() if name.upper().startswith(_SHARED_VARIABLES)},
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }


def shared_paths(variables: dict[str, str]) -> list[str]:
    """Return the paths that are shared with the root directory: name resolution, certificates, local wheels."""
    words = {word for name, value in variables.items() if name != "PATH" for word in value.split()}
    named = {word for word in words if word.startswith("/") and word != variables["HOME"]}
    inside = tuple(f"{folder}/" for folder in _FILES)
    paths = [*_FILES, *sorted(word for word in named if not word.startswith(inside))]
    return [path for path in dict.fromkeys(paths) if Path(path).exists()]


def _pip_configuration() -> dict[str, str]:
    """Return the settings of pip's configuration files as environment variables."""
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    settings = dict(line.split("=", 1) for line in lines if line.startswith(("global.", "install.")))
    return {
        f"PIP_{name.partition('.')[2].replace('-', '_').upper()}": " ".join(str(ast.literal_eval(value)).split())
        for name, value in settings.items()
    }
